"""What is asked of every variant. Each suite is texts, prompts and scoring; running them is others' work."""

from __future__ import annotations

SUITES: dict[str, str] = {
    "mmlu": "multiple-choice questions through lm-eval: accuracy, and answers that flip against the reference",
    "lm_eval": "any tasks of lm-eval by name: choices, log-likelihoods, perplexities, answers in free text",
    "long_context": "facts that change over a long text, recalled at several depths; repetition in a long continuation",
    "code_syntax": "functions completed in eight languages: does the program parse",
    "speed": "prompts of several lengths: time to first token, decode rate, jitter",
    "fidelity": "distance to the reference on a fixed text: KL divergence, top-1 agreement, greedy agreement",
}
