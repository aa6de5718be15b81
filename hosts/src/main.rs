//! See `warpsmith_hosts` and `warpsmith::main_with`.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpsmith::main_with(Some(warpsmith_hosts::HOSTS))
}
