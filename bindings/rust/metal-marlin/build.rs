//! The tests, examples and documentation of this package find the library where it was linked from.

fn main() {
    println!("cargo:rerun-if-env-changed=DEP_METAL_MARLIN_LIBDIR");
    if let Ok(libdir) = std::env::var("DEP_METAL_MARLIN_LIBDIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{libdir}");
    }
}
