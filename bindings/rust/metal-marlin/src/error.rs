use std::ffi::CStr;
use std::io;

use metal_marlin_sys as sys;

use crate::Status;

/// What failed, the code of the system or device behind it, and the message: what was expected, what was found, and where.
///
/// ```
/// # #[cfg(feature = "link")]
/// # {
/// use metal_marlin::{Checkpoint, Status};
/// use std::error::Error;
///
/// let error = Checkpoint::open("no-such-file.gguf").unwrap_err();
/// assert_eq!(error.status(), Status::FILE);
/// let source = error.source().unwrap().downcast_ref::<std::io::Error>().unwrap();
/// assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
/// # }
/// ```
///
/// It shows itself in the same words with `{}` and `{:?}`, so that a `main` that returns it prints a sentence.
pub struct Error {
    status: Status,
    native_code: i32,
    message: String,
    source: Option<io::Error>,
}

/// What the calls of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        Error { status, native_code: 0, message: message.into(), source: None }
    }

    pub(crate) fn from_raw(status: sys::marlin_status, raw: &sys::marlin_error) -> Self {
        // SAFETY: the library ends the message with a NUL, and an unfilled one is all zero.
        let message = unsafe { CStr::from_ptr(raw.message.as_ptr()) };
        let source =
            (status == sys::MARLIN_E_FILE && raw.native_code != 0).then(|| io::Error::from_raw_os_error(raw.native_code));
        Error { status: Status(status), native_code: raw.native_code, message: message.to_string_lossy().into_owned(), source }
    }

    /// Which kind of failure.
    pub fn status(&self) -> Status {
        self.status
    }

    /// errno, CUresult or NSError.code; 0 when there is none.
    pub fn native_code(&self) -> i32 {
        self.native_code
    }

    /// What was expected, what was found, and where.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.status, self.message)
    }
}

shown!(Error, |this, f| std::fmt::Display::fmt(this, f));

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
