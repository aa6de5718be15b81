# What is checked before a change goes in: `just ci`, which `.ci/run` calls after it has installed what that needs.

export RUSTDOCFLAGS := "-D warnings"

# C++ and CUDA that ship and that no recorded run names by hash, and Python that ships.
cpp := "git ls-files 'kernelbench/harness/*.h' 'kernelbench/harness/*.cpp' 'kernelbench/src/*.cu' 'kernelbench/src/*.c' 'kernelbench/src/*.h'"
python := "git ls-files 'kernelbench/harness/*.py' 'src/sglang/*.py' 'sglang/*.py'"

# Everything that CI checks, what is quick to fail first.
ci: fmt python cpp deny clippy doc beside test

# The same without the demonstration, which is a second build.
check: fmt python cpp deny clippy doc test

fmt:
    cargo fmt --all --check

# Python, where ruff is installed (`pip install ruff`).
python:
    if command -v ruff > /dev/null; then {{python}} | xargs ruff check; else echo "ruff is not installed: skipped"; fi

# C++ and CUDA, where clang-format is installed (`pip install clang-format==19.1.7`; other versions differ).
cpp:
    if command -v clang-format > /dev/null; then {{cpp}} | xargs clang-format --dry-run -Werror; else echo "clang-format is not installed: skipped"; fi

# Bans, licences and sources, where cargo-deny is installed. Advisories need a network: `cargo deny check advisories`.
deny:
    if command -v cargo-deny > /dev/null; then cargo deny --locked check bans licenses sources; else echo "cargo-deny is not installed: skipped"; fi

# Tests build in what programs leave out (the features of Cargo.toml), so the second looks at programs as they are.
clippy:
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo clippy --workspace --locked -- -D warnings

doc:
    cargo doc --workspace --no-deps --locked

# README's first command: the real loop on a real kernel, with a recorded run in the model's place.
demo:
    cargo run --release -- run examples/silu_and_mul

# The demonstration, whose rounds leave a core idle, while the tests are built.
[parallel]
beside: demo built

built:
    cargo test --workspace --no-run

# README's test command.
test:
    cargo test --workspace

# Brings the list of source files up to date.
architecture:
    WRITE_ARCHITECTURE=1 cargo test --quiet -p warpsmith --test all architecture::

# A report of a simulated run, to look at while working on its template.
sample-report out="target/sample-run":
    rm -rf {{out}}
    cargo run --quiet -- run examples/silu_and_mul --model scripted:tests/scripts/ten-rounds.jsonl --simulate --out {{out}}

# The picture in README.md, drawn from the recorded run of the example.
picture:
    cargo run --quiet -- report examples/silu_and_mul/recorded --picture docs/run.svg

# Makes the tables of docs/RESULTS.md and docs/results/ from docs/results/data/.
results:
    WRITE_RESULTS=1 cargo test --quiet -p warpsmith --test all every_table

# One binary for Linux on x86-64 with glibc 2.31 or newer (Debian 11, Ubuntu 20.04), by cargo-zigbuild.
dist:
    cargo zigbuild --release --locked --target x86_64-unknown-linux-gnu.2.31
    mkdir -p target/dist
    cp "${CARGO_TARGET_DIR:-target}/x86_64-unknown-linux-gnu/release/warpsmith" target/dist/
    cargo test --quiet -p warpsmith --test all dist:: -- --ignored

# The pages as a book with the report of a recorded run in it: target/book/book/index.html. Needs mdbook (`cargo install mdbook`).
docs:
    rm -rf target/book && mkdir -p target/book/src/docs
    git ls-files '*.md' 'docs/*.svg' 'docs/Dockerfile' | xargs cp --parents --target-directory target/book/src
    cp docs/book.toml target/book/ && cp docs/SUMMARY.md target/book/src/
    cargo run --quiet -- report examples/silu_and_mul/recorded --out target/book/src/docs/example-report.html
    mdbook build target/book
