//! Says to the compiler what tests need and this machine has.

include!("needs.rs");

fn main() {
    say_what_is_there();
}
