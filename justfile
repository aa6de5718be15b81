# What is checked before a change goes in; CI (.ci/run) runs the same.

export RUSTDOCFLAGS := "-D warnings"

# Everything that CI checks.
check: fmt clippy doc test deny

fmt:
    cargo fmt --all --check

clippy:
    cargo clippy --workspace --all-targets --locked -- -D warnings

doc:
    cargo doc --workspace --no-deps --locked

test:
    cargo test --workspace

# Licences and advisories, where cargo-deny is installed.
deny:
    if command -v cargo-deny > /dev/null; then cargo deny check; else echo "cargo-deny is not installed: skipped"; fi

# Brings the list of source files in ARCHITECTURE.md up to date.
architecture:
    WRITE_ARCHITECTURE=1 cargo test --quiet --test architecture

# The demonstration: the real loop on a real kernel, with a recorded run in the model's place.
demo:
    cargo run --release -- run examples/silu_and_mul

# A report of a simulated run, to look at while working on its template.
sample-report out="target/sample-run":
    rm -rf {{out}}
    cargo run --quiet -- run examples/silu_and_mul --model scripted:tests/scripts/ten-rounds.jsonl --simulate --out {{out}}
