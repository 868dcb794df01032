# about: the crates: linked and loaded, their documentation and README, clippy, rustfmt
# inputs: bindings/rust bindings/checks.sh include src/api
# seconds: 40
# when: changed
command -v cargo >/dev/null || (install_packages rust) || left_out "there is no cargo, and its packages cannot be installed"
binding rust
