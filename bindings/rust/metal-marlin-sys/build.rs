//! Asks pkg-config where the library is. Dependents find its folder in DEP_METAL_MARLIN_LIBDIR.

use std::env;
use std::process::Command;

const PACKAGE: &str = "metal-marlin >= 0.1.0";

fn pkg_config(arguments: &[&str]) -> String {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
    let output =
        Command::new(&program).args(arguments).arg(PACKAGE).output().unwrap_or_else(|e| {
            panic!("cannot run {program}, which finds libmetal-marlin ({e}); install it, or set PKG_CONFIG")
        });
    if !output.status.success() {
        panic!(
            "pkg-config does not find {PACKAGE}: install the library, or set PKG_CONFIG_PATH to its lib/pkgconfig\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8(output.stdout).expect("pkg-config prints text").trim().to_owned()
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in
        ["PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR", "METAL_MARLIN_STATIC", "DOCS_RS"]
    {
        println!("cargo:rerun-if-env-changed={name}");
    }
    if env::var_os("CARGO_FEATURE_LINK").is_none() || env::var_os("DOCS_RS").is_some() {
        return;
    }
    let whole = env::var_os("METAL_MARLIN_STATIC").map_or(false, |value| value == "1");
    let libdir = pkg_config(&["--variable=libdir"]);
    let mut flags = vec!["--print-errors", "--libs"];
    if whole {
        flags.push("--static");
    }
    for flag in pkg_config(&flags).split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            let kind = if whole && library == "metal-marlin" { "static=" } else { "" };
            println!("cargo:rustc-link-lib={kind}{library}");
        } // What is left are options for C compilers, such as -pthread.
    }
    println!("cargo:libdir={libdir}");
    // This package's own tests find the library; a dependent has to say so itself.
    println!("cargo:rustc-link-arg=-Wl,-rpath,{libdir}");
}
