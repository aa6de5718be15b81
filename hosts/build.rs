//! Says to the compiler whether the message server that tests need is here: `has_nats`.

fn main() {
    println!("cargo::rerun-if-env-changed=WARPSMITH_NATS");
    println!("cargo::rustc-check-cfg=cfg(has_nats)");
    if std::env::var_os("WARPSMITH_NATS").is_some() {
        println!("cargo::rustc-cfg=has_nats");
    }
}
