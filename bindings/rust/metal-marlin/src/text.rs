//! Texts on their way to and from C.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use std::path::Path;

use crate::{Error, Result, Status};

/// A text of the library's.
///
/// # Safety
/// NULL, or ended by a NUL and alive during `'a`.
pub(crate) unsafe fn from_c<'a>(at: *const c_char) -> Cow<'a, str> {
    if at.is_null() {
        return "".into();
    }
    CStr::from_ptr(at).to_string_lossy()
}

pub(crate) fn to_c(value: &str, what: &str) -> Result<CString> {
    CString::new(value).map_err(|_| Error::new(Status::ARGUMENT, format!("{what} has a NUL in it: {value:?}")))
}

#[cfg(unix)]
pub(crate) fn path_to_c(path: &Path) -> Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::new(Status::ARGUMENT, format!("the path has a NUL in it: {path:?}")))
}
