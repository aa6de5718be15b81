//! See `warpsmith_selection::main`.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpsmith_selection::main()
}
