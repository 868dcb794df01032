//! Asks pkg-config where the library is, else builds it from the sources of the repository, when this crate lies in it. Dependents
//! find the folder of a shared library in DEP_METAL_MARLIN_LIBDIR.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "metal-marlin >= 0.9.0";

/// What the program that this variable names says, or `usual`; else why it says nothing.
fn output(variable: &str, usual: &str, arguments: &[&str]) -> Result<String, String> {
    let program = env::var(variable).unwrap_or_else(|_| usual.to_owned());
    let output =
        Command::new(&program).args(arguments).output().map_err(|e| format!("{program} does not run ({e}); set {variable}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("{program} failed:\n{}\n{}", text(&output.stdout), text(&output.stderr)))
}

fn pkg_config(arguments: &[&str]) -> Result<String, String> {
    output("PKG_CONFIG", "pkg-config", &[arguments, &["--print-errors", PACKAGE]].concat())
}

fn link_installed() -> Result<(), String> {
    let whole = env::var_os("METAL_MARLIN_STATIC").map_or(false, |value| value == "1");
    let libdir = pkg_config(&["--variable=libdir"])?;
    let mut flags = vec!["--libs"];
    if whole {
        flags.push("--static");
    }
    for flag in pkg_config(&flags)?.split_whitespace() {
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
    Ok(())
}

/// The archive, so that programs need no file of this build. It is optimized in every profile: kernels that are not are no use.
fn link_built(top: &Path) -> Result<(), String> {
    if env::var_os("HOST") != env::var_os("TARGET") {
        return Err("that is done for this system alone".to_owned());
    }
    let made = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let (top, folder) = (top.display().to_string(), made.display().to_string());
    let jobs = env::var("NUM_JOBS").unwrap_or_else(|_| "1".to_owned());
    let configure =
        ["-S", &top, "-B", &folder, "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_UNITY_BUILD=ON", "-DMETAL_MARLIN_TOOLS=OFF"];
    output("CMAKE", "cmake", &configure)?;
    output("CMAKE", "cmake", &["--build", &folder, "--parallel", &jobs, "--target", "metal_marlin_static"])?;
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=static=metal-marlin");
    let apple = env::var("CARGO_CFG_TARGET_VENDOR").map_or(false, |vendor| vendor == "apple");
    let others: &[&str] =
        if apple { &["c++", "framework=Foundation", "framework=Metal"] } else { &["stdc++", "m", "dl", "pthread"] };
    for library in others {
        println!("cargo:rustc-link-lib={library}");
    }
    for each in ["CMakeLists.txt", "cmake", "include", "shaders", "src"] {
        println!("cargo:rerun-if-changed={top}/{each}");
    }
    Ok(())
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in [
        "CMAKE",
        "PKG_CONFIG",
        "PKG_CONFIG_PATH",
        "PKG_CONFIG_LIBDIR",
        "PKG_CONFIG_SYSROOT_DIR",
        "METAL_MARLIN_STATIC",
        "DOCS_RS",
    ] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    if env::var_os("CARGO_FEATURE_LINK").is_none() || env::var_os("DOCS_RS").is_some() {
        return;
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let linked = link_installed().or_else(|absent| {
        if !top.join("src/api/exports.map").exists() {
            let how = "install the library, or set PKG_CONFIG_PATH to its lib/pkgconfig";
            return Err(format!("pkg-config does not find {PACKAGE}: {how}\n{absent}"));
        }
        link_built(&top).map_err(|why| format!("libmetal-marlin is not installed ({absent}), and not to be built: {why}"))
    });
    if let Err(why) = linked {
        panic!("{why}");
    }
}
