"""What a hostile program tries in the sandbox. Each says BREACH where it gets through and TRIED at its end."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import sandbox
from harness.sandbox import Limits, Ran

LIMITS = Limits(
    memory_bytes=256 << 20, cpu_s=2, wall_s=4.0, output_bytes=65536, file_bytes=8 << 20, disk_bytes=32 << 20
)
PRELUDE = """
import ctypes, glob, mmap, os, resource, signal, socket, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def breach(what):
    print("BREACH", what, flush=True)
def attempt(what, act):
    try:
        found = act()
    except BaseException as error:
        print("refused", what, type(error).__name__, error)
    else:
        breach(f"{what}: {found!r:.90}")
def call(what, *arguments):
    if libc.syscall(*arguments) != -1:
        breach(what)
    else:
        print("refused", what, os.strerror(ctypes.get_errno()))
def read(path):
    with open(path, "rb") as file:
        return file.read(100)
def write(path):
    with open(path, "ab") as file:
        file.write(b"x")
def connect(family, address):
    one = socket.socket(family)
    one.settimeout(1)
    one.connect(address)
def spawn(*command):
    return subprocess.run(command, check=True, capture_output=True, timeout=2).stdout
"""


@dataclass(frozen=True, slots=True)
class Host:
    """What there is outside to be reached: named to the attacks, and looked at after them.

    Attributes:
        secret: Text that no program may print.
        folder: A folder that everyone may write to, with the secret in "secret.txt".
        port: A TCP port that listens on 127.0.0.1.
        name: An abstract unix socket that listens.
        victim: A process of the very user that the programs run as.
    """

    secret: str
    folder: Path
    port: int
    name: str
    victim: subprocess.Popen[bytes]


@contextlib.contextmanager
def host() -> Iterator[Host]:
    """Set up what the attacks aim at."""
    secret = secrets.token_hex(16)
    os.environ["HARNESS_SECRET"] = secret
    drop = {"user": sandbox.user()} if os.geteuid() == 0 else {}
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        Path(folder).chmod(0o777)
        Path(folder, "secret.txt").write_text(secret)
        name = f"harness-{secrets.token_hex(8)}"
        unix.bind(f"\0{name}")
        unix.listen()
        victim = subprocess.Popen(["sleep", "600"], cwd="/", **drop)  # type: ignore[call-overload]
        try:
            yield Host(secret, Path(folder), tcp.getsockname()[1], name, victim)
        finally:
            victim.kill()
            victim.wait()
            del os.environ["HARNESS_SECRET"]


@dataclass(frozen=True, slots=True)
class Attack:
    """A program and how it may end: by itself (None), or by one of these limits."""

    name: str
    program: str
    ends: tuple[str | None, ...] = (None,)


def launch(attack: Attack, place: Host) -> Ran:
    """Run an attack."""
    names = {"FOLDER": str(place.folder), "PORT": place.port, "NAME": place.name, "VICTIM": place.victim.pid}
    head = "".join(f"{key} = {value!r}\n" for key, value in names.items())
    program = f"{PRELUDE}{head}{attack.program}\nprint('TRIED', flush=True)\n"
    return sandbox.run(["/usr/bin/python3", "program.py"], {"program.py": program}, LIMITS)


def fault(attack: Attack, ran: Ran, place: Host) -> str | None:
    """How an attack got through, or why it tells nothing; None if the sandbox held."""
    said = ran.stdout + ran.stderr
    if "BREACH" in said:
        return next(line for line in said.splitlines() if "BREACH" in line)
    if place.secret in said:
        return "the secret was read"
    if place.victim.poll() is not None:
        return "a process outside was ended"
    if sorted(os.listdir(place.folder)) != ["secret.txt"] or (place.folder / "secret.txt").read_text() != place.secret:
        return "a file outside was changed"
    if not ran.gone:
        return "a process is left"
    if ran.limit not in attack.ends:
        return f"ended by {ran.limit or 'itself'}, expected {attack.ends}: {said[-200:]}"
    if ran.limit is None and "TRIED" not in ran.stdout:
        return f"the attack did not run to its end: {said[-300:]}"
    return None


ATTACKS = (
    Attack("read the password files", "for f in ('/etc/shadow', '/etc/passwd'): attempt(f, lambda: read(f))"),
    Attack("read a home and a file outside", """
for f in (FOLDER + "/secret.txt", "/root/.bashrc"): attempt(f, lambda: read(f))
for f in ("/root", "/home", "/var", "/run", "/sys", "/opt", FOLDER): attempt(f, lambda: os.listdir(f))"""),
    Attack("secrets in the environment", """
for f in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
    try: print(read(f))
    except OSError: pass
print(open("/proc/1/environ").read(), dict(os.environ))"""),
    Attack("connect to the host's loopback", "attempt('tcp', lambda: connect(socket.AF_INET, ('127.0.0.1', PORT)))"),
    Attack("connect to the internet", """
attempt("tcp", lambda: connect(socket.AF_INET, ("1.1.1.1", 53)))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 53)))
attempt("v6", lambda: connect(socket.AF_INET6, ("2606:4700:4700::1111", 53)))"""),
    Attack("look up a name", "attempt('dns', lambda: socket.getaddrinfo('example.com', 80))"),
    Attack("sockets of virtual machines, raw sockets", """
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt("bluetooth", lambda: socket.socket(31, socket.SOCK_RAW))
attempt("alg", lambda: socket.socket(38, socket.SOCK_SEQPACKET))"""),
    Attack("abstract unix socket of the host", "attempt('unix', lambda: connect(socket.AF_UNIX, chr(0) + NAME))"),
    Attack("X11, D-Bus, agents", """
for f in ("/tmp/.X11-unix/X0", "\\0/tmp/.X11-unix/X0", "/run/dbus/system_bus_socket", "/run/user/0/bus",
          "/run/docker.sock", "/var/run/docker.sock", "/run/systemd/private", "/dev/log"):
    attempt(f, lambda: connect(socket.AF_UNIX, f))"""),
    Attack("fork bomb", """
n = 0
try:
    while n < 500:
        if os.fork() == 0: time.sleep(60); os._exit(0)
        n += 1
except OSError as error: print(n, error)
if n > 70: breach(n)"""),
    Attack("fork bomb of all children", """
while True:
    try: os.fork()
    except OSError: pass""", ("timeout",)),
    Attack("thread bomb", """
n = 0
try:
    while n < 500:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); n += 1
except RuntimeError as error: print(n, error)
if n > 70: breach(n)"""),
    Attack("memory in one process", "attempt('4 GiB', lambda: len(bytearray(4 << 30)))"),
    Attack("memory in many processes", """
for _ in range(10):
    if os.fork() == 0:
        held = bytearray(b"x") * (100 << 20); time.sleep(60); os._exit(0)
time.sleep(60)""", ("memory",)),
    Attack("memory shared by processes", """
held = mmap.mmap(-1, 2 << 30)
for at in range(0, 2 << 30, 4096): held[at] = 1
breach("2 GiB")""", ("memory",)),
    Attack("memory that belongs to no process", """
attempt("memfd", lambda: os.memfd_create("x"))
call("shmget", 29 if os.uname().machine == "x86_64" else 194, 0, 1 << 30, 0o1666)
def fill():
    with open("/dev/shm/x", "wb") as file:
        for _ in range(8): file.write(bytes(1 << 20)); file.flush()
attempt("8 MiB in /dev/shm", fill)"""),
    Attack("fill the disk", """
def fill():
    for n in range(32):
        with open(f"/work/{n}", "wb") as file: file.write(bytes(4 << 20))
attempt("128 MiB", fill)
def temporary():
    with open("/tmp/x", "wb") as file:
        for _ in range(7): file.write(bytes(1 << 20))
    for n in range(7): os.link("/tmp/x", f"/tmp/l{n}"); open(f"/tmp/{n}", "wb").write(bytes(7 << 20))
attempt("50 MiB in /tmp", temporary)"""),
    Attack("one huge file", """
def fill():
    with open("/work/huge", "wb") as file:
        for _ in range(16): file.write(bytes(1 << 20))
attempt("16 MiB", fill)
attempt("sparse", lambda: os.truncate("/work/huge", 1 << 40))"""),
    Attack("write outside its folder", """
for f in (FOLDER + "/secret.txt", FOLDER + "/new", "/new", "/usr/new", "/etc/new", "/dev/new", "/proc/new", "/var/new"):
    attempt(f, lambda: write(f))
attempt("mkdir", lambda: os.makedirs("/root/new"))"""),
    Attack("change the toolchain", """
for f in ("/usr/bin/python3", "/usr/bin/prlimit", "/usr/bin/bwrap", os.__file__, "/etc/ld.so.cache"):
    attempt(f, lambda: write(f))
    attempt(f, lambda: os.chmod(f, 0o777))
    attempt(f, lambda: os.unlink(f))"""),
    Attack("flood of output", "while True: print('x' * 1000)", ("output limit",)),
    Attack("flood of errors", "while True: os.write(2, bytes(65536))", ("output limit",)),
    Attack("endless loop", "while True: pass", ("timeout",)),
    Attack("endless loop that ignores signals", """
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass""", ("timeout",)),
    Attack("sleep with its outputs closed", "os.close(1); os.close(2); time.sleep(60)", ("timeout",)),
    Attack("stop itself", "os.kill(os.getpid(), signal.SIGSTOP)", ("timeout",)),
    Attack("daemon that outlives its parent", """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for n in range(3): os.close(n)
        time.sleep(60)
    os._exit(0)
os.wait()"""),
    Attack("kill a process outside", """
for n in (VICTIM, -VICTIM): attempt(n, lambda: os.kill(n, signal.SIGKILL))
os.kill(1, signal.SIGKILL)
print("TRIED", flush=True)
os.kill(-1, signal.SIGKILL)"""),
    Attack("debug a process", """
arm = os.uname().machine != "x86_64"
call("attach", 117 if arm else 101, 16, VICTIM, 0, 0)
call("seize init", 117 if arm else 101, 0x4206, 1, 0, 0)
call("process_vm_readv", 270 if arm else 310, 1, 0, 0, 0, 0, 0)
attempt("memory of init", lambda: write("/proc/1/mem"))"""),
    Attack("roots of processes", """
for f in glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd"):
    for below in ("/root", "/home", FOLDER): attempt(f + below, lambda: os.listdir(f + below))
if len(list(filter(str.isdigit, os.listdir("/proc")))) > 5: breach("the host's processes are seen")"""),
    Attack("links out of its folder", """
os.symlink(FOLDER + "/secret.txt", "/work/a"); attempt("symlink", lambda: read("/work/a"))
os.symlink("../../../.." + FOLDER, "/work/b"); attempt("relative", lambda: os.listdir("/work/b"))
attempt("hard link", lambda: os.link("/usr/bin/python3", "/work/c"))
call("open_by_handle_at", 304 if os.uname().machine == "x86_64" else 265, 3, 0, 0)"""),
    Attack("mount", """
for kind, where in ((b"tmpfs", b"/usr"), (b"proc", b"/proc"), (b"sysfs", b"/work"), (b"ext4", b"/work")):
    if libc.mount(kind, where, kind, 0, None) == 0: breach(kind)
if libc.umount2(b"/usr", 2) == 0: breach("umount")
if libc.mount(None, b"/usr", None, 32 | 4096, None) == 0: breach("remount for writing")
attempt("chroot", lambda: os.chroot("/work"))"""),
    Attack("namespaces of its own", """
for flag in (0x10000000, 0x00020000, 0x40000000):
    if libc.unshare(flag) == 0: breach(hex(flag))
attempt("unshare", lambda: spawn("/usr/bin/unshare", "-Ur", "true"))
attempt("bwrap", lambda: spawn("/usr/bin/bwrap", "--unshare-user", "--ro-bind", "/", "/", "true"))
call("clone", 56 if os.uname().machine == "x86_64" else 220, 0x10000000 | 17, 0, 0, 0, 0)"""),
    Attack("device files", """
for f in ("/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/sda", "/dev/vda", "/dev/nvidia0", "/dev/fuse", "/dev/core"):
    attempt(f, lambda: read(f))
attempt("mknod", lambda: os.mknod("/work/disk", 0o60666, os.makedev(254, 0)))
attempt("/dev/tty", lambda: open("/dev/tty", "rb+"))"""),
    Attack("become root", """
for act in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.setresuid(0, 0, 0)):
    attempt("setuid", act)
for f in ("/usr/bin/su", "/usr/bin/sudo", "/usr/bin/newgrp", "/usr/bin/passwd"):
    if os.path.exists(f): print(f, subprocess.run([f], stdin=subprocess.DEVNULL, timeout=2).returncode)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
if os.geteuid() == 0 or status["NoNewPrivs"].strip() != "1": breach("new privileges")
if any(int(status[key], 16) for key in ("CapEff", "CapPrm", "CapInh", "CapAmb")): breach(status["CapEff"])
if status["Seccomp"].strip() != "2": breach("no filter")"""),
    Attack("read standard input", """
if (text := sys.stdin.read()): breach(text)"""),
    Attack("inherited descriptors", """
for n in range(3, 256):
    try: breach(f"{n} {os.fstat(n)}")
    except OSError: pass"""),
    Attack("raise its own limits", """
for name in ("DATA", "NPROC", "CPU", "FSIZE", "NOFILE", "CORE"):
    n = getattr(resource, "RLIMIT_" + name)
    attempt(n, lambda: resource.setrlimit(n, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))
attempt("oom", lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000"))
attempt("nice", lambda: os.nice(-10))"""),
    Attack("settings of the kernel", """
for f in ("sys/kernel/core_pattern", "sysrq-trigger", "sys/vm/drop_caches", "sys/kernel/hostname"):
    f = "/proc/" + f
    attempt(f, lambda: write(f))
attempt("hostname", lambda: socket.sethostname("x"))
attempt("clock", lambda: time.clock_settime(time.CLOCK_REALTIME, 0))
attempt("cgroup", lambda: os.listdir("/sys/fs/cgroup"))"""),
    Attack("keys, bpf, io_uring, perf", """
arm = os.uname().machine != "x86_64"
call("keyctl", 219 if arm else 250, 0, -3, 0)
call("add_key", 217 if arm else 248, b"user", b"x", b"y", 1, -3)
call("bpf", 280 if arm else 321, 0, 0, 0)
call("io_uring", 425, 8, ctypes.create_string_buffer(120))
call("perf", 241 if arm else 298, ctypes.create_string_buffer(120), 0, -1, -1, 0)
call("userfaultfd", 282 if arm else 323, 1)"""),
)  # fmt: skip
