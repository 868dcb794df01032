//! dlopen, declared by hand.

use std::ffi::{c_void, CStr, CString};
use std::os::raw::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use metal_marlin_sys as sys;

use crate::{Error, Result, Status};

extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(object: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlclose(object: *mut c_void) -> c_int;
    fn dlerror() -> *mut c_char;
}

const RTLD_NOW: c_int = 2;
const RTLD_LOCAL: c_int = if cfg!(target_vendor = "apple") { 4 } else { 0 };

/// A shared object, closed when dropped.
pub(crate) struct Object(NonNull<c_void>);

impl Object {
    /// # Safety
    /// The file's initializers run.
    pub unsafe fn open(path: &Path) -> Result<Object> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::new(Status::ARGUMENT, "the library's path has a NUL in it"))?;
        NonNull::new(dlopen(name.as_ptr(), RTLD_NOW | RTLD_LOCAL))
            .map(Object)
            .ok_or_else(|| failure(Status::FILE, path.display().to_string()))
    }

    /// The table of functions, when the object has all that this crate knows of.
    ///
    /// # Safety
    /// What the object calls `marlin_get_api` is that function.
    pub unsafe fn api(&self) -> Result<NonNull<sys::marlin_api>> {
        let symbol = dlsym(self.0.as_ptr(), b"marlin_get_api\0".as_ptr().cast());
        if symbol.is_null() {
            return Err(failure(Status::UNSUPPORTED, "no libmetal-marlin".to_owned()));
        }
        let get_api: unsafe extern "C" fn(u32) -> *const sys::marlin_api = std::mem::transmute(symbol);
        let major = sys::MARLIN_ABI_MAJOR;
        let api = NonNull::new(get_api(major) as *mut sys::marlin_api)
            .ok_or_else(|| Error::new(Status::UNSUPPORTED, format!("the library does not serve ABI {major}")))?;
        // Only what lies inside its size may be read.
        let (size, needed) = (api.as_ptr().cast::<u32>().read(), std::mem::size_of::<sys::marlin_api>());
        if (size as usize) < needed {
            let message =
                format!("the library is older than this crate: its table has {size} bytes, expected {needed} or more");
            return Err(Error::new(Status::UNSUPPORTED, message));
        }
        Ok(api)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: nothing of it is in use: every handle keeps its library.
        unsafe { dlclose(self.0.as_ptr()) };
    }
}

unsafe fn failure(status: Status, what: String) -> Error {
    let why = dlerror();
    let why = if why.is_null() { String::new() } else { CStr::from_ptr(why).to_string_lossy().into_owned() };
    Error::new(status, format!("{what}: {why}"))
}
