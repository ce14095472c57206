"""How fast zcoll is, beside its peers. ``tools/bench/run`` measures and reports."""
