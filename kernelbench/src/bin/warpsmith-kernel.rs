//! The child process of the native workshop as a program of its own, for this package's tests. The released program is
//! one binary, whose hidden sub-command calls the same function.

fn main() {
    warpsmith_kernelbench::native::child_main()
}
