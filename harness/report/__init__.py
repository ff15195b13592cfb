"""The page a person decides from: results and series in, one offline HTML file's text out."""
