use std::borrow::Cow;
use std::convert::TryInto;
use std::os::raw::c_char;
use std::{ptr, slice};

use metal_marlin_sys as sys;

use crate::text;
use crate::{Checkpoint, Error, Result, Status};

/// What a file says about its model under one key. Bytes of a text that are no UTF-8 become U+FFFD.
///
/// The numbers of an array are widened to 64 bits, as a single number is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// True or false.
    Bool(bool),
    /// Of a signed type; every integer of config.json that fits.
    I64(i64),
    /// Of an unsigned type.
    U64(u64),
    /// A float.
    F64(f64),
    /// A text.
    String(Cow<'a, str>),
    /// An array of them.
    Bools(Vec<bool>),
    /// An array of signed integers.
    I64s(Vec<i64>),
    /// An array of unsigned integers.
    U64s(Vec<u64>),
    /// An array of floats.
    F64s(Vec<f64>),
    /// An array of texts.
    Strings(Vec<Cow<'a, str>>),
}

impl Checkpoint {
    /// The value of a key of a GGUF, or of a member of config.json: `"quantization_config.bits"` is inside of an object.
    pub fn value(&self, key: &str) -> Result<Option<Value<'_>>> {
        let key = text::to_c(key, "the key")?;
        let mut raw = sys::marlin_value::default();
        // SAFETY: the key lives during the call, and `raw` says its size.
        let found =
            self.library().call(|api, err| unsafe { (api.checkpoint_value)(self.as_raw(), key.as_ptr(), &mut raw, err) });
        match found {
            Ok(()) => value_of(self, &raw).map(Some),
            Err(e) if e.status() == Status::NOT_FOUND => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// All keys and their values, in the order of the file.
    pub fn values(&self) -> Values<'_> {
        Values { checkpoint: self, next: 0 }
    }
}

/// The keys and values of a [`Checkpoint`].
#[derive(Clone, Debug)]
pub struct Values<'a> {
    checkpoint: &'a Checkpoint,
    next: u64,
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<(Cow<'a, str>, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut raw = sys::marlin_value::default();
        let (checkpoint, index) = (self.checkpoint, self.next);
        self.next += 1;
        // SAFETY: `raw` says its size.
        let found = checkpoint
            .library()
            .call(|api, err| unsafe { (api.checkpoint_value_at)(checkpoint.as_raw(), index, &mut raw, err) });
        match found {
            // SAFETY: the key lives as long as the checkpoint.
            Ok(()) => Some(value_of(checkpoint, &raw).map(|value| (unsafe { text_at(raw.key, raw.key_bytes) }, value))),
            Err(e) if e.status() == Status::NOT_FOUND => None,
            Err(e) => Some(Err(e)),
        }
    }
}

/// `raw` is one of the checkpoint's.
fn value_of<'a>(checkpoint: &'a Checkpoint, raw: &sys::marlin_value) -> Result<Value<'a>> {
    Ok(match raw.kind {
        sys::MARLIN_VALUE_BOOL => Value::Bool(raw.i64 != 0),
        sys::MARLIN_VALUE_I64 => Value::I64(raw.i64),
        sys::MARLIN_VALUE_U64 => Value::U64(raw.u64),
        sys::MARLIN_VALUE_F64 => Value::F64(raw.f64),
        // SAFETY: the text lives as long as the checkpoint.
        sys::MARLIN_VALUE_STRING => Value::String(unsafe { text_at(raw.data as *const c_char, raw.bytes) }),
        sys::MARLIN_VALUE_ARRAY => array_of(checkpoint, raw)?,
        other => return Err(unknown(other)),
    })
}

fn array_of<'a>(checkpoint: &'a Checkpoint, raw: &sys::marlin_value) -> Result<Value<'a>> {
    Ok(match raw.element_type {
        sys::MARLIN_VALUE_BOOL => Value::Bools(elements(raw, |[byte]| byte != 0)),
        sys::MARLIN_VALUE_I8 => Value::I64s(elements(raw, |bytes| i8::from_le_bytes(bytes).into())),
        sys::MARLIN_VALUE_I16 => Value::I64s(elements(raw, |bytes| i16::from_le_bytes(bytes).into())),
        sys::MARLIN_VALUE_I32 => Value::I64s(elements(raw, |bytes| i32::from_le_bytes(bytes).into())),
        sys::MARLIN_VALUE_I64 => Value::I64s(elements(raw, i64::from_le_bytes)),
        sys::MARLIN_VALUE_U8 => Value::U64s(elements(raw, |bytes| u8::from_le_bytes(bytes).into())),
        sys::MARLIN_VALUE_U16 => Value::U64s(elements(raw, |bytes| u16::from_le_bytes(bytes).into())),
        sys::MARLIN_VALUE_U32 => Value::U64s(elements(raw, |bytes| u32::from_le_bytes(bytes).into())),
        sys::MARLIN_VALUE_U64 => Value::U64s(elements(raw, u64::from_le_bytes)),
        sys::MARLIN_VALUE_F32 => Value::F64s(elements(raw, |bytes| f32::from_le_bytes(bytes).into())),
        sys::MARLIN_VALUE_F64 => Value::F64s(elements(raw, f64::from_le_bytes)),
        sys::MARLIN_VALUE_STRING => Value::Strings(strings(checkpoint, raw)?),
        other => return Err(unknown(other)),
    })
}

fn unknown(kind: sys::marlin_value_type) -> Error {
    Error::new(Status::UNSUPPORTED, format!("values of type {kind} came after this version of the crate"))
}

fn elements<T, const N: usize>(raw: &sys::marlin_value, read: impl Fn([u8; N]) -> T) -> Vec<T> {
    if raw.bytes == 0 {
        return Vec::new();
    }
    // SAFETY: the file has them there, as long as the checkpoint lives.
    let bytes = unsafe { slice::from_raw_parts(raw.data as *const u8, raw.bytes as usize) };
    bytes.chunks_exact(N).map(|element| read(element.try_into().expect("N bytes"))).collect()
}

fn strings<'a>(checkpoint: &'a Checkpoint, raw: &sys::marlin_value) -> Result<Vec<Cow<'a, str>>> {
    let (mut at, mut bytes) = (ptr::null(), 0);
    (0..raw.count)
        .map(|_| {
            // SAFETY: the array is the checkpoint's, and `at` and `bytes` are those of the call before.
            checkpoint.library().call(|api, err| unsafe { (api.value_next_string)(raw, &mut at, &mut bytes, err) })?;
            // SAFETY: the text lives as long as the checkpoint.
            Ok(unsafe { text_at(at, bytes) })
        })
        .collect()
}

/// # Safety
/// There are so many bytes, which live during `'a`; or none.
unsafe fn text_at<'a>(at: *const c_char, bytes: u64) -> Cow<'a, str> {
    if bytes == 0 {
        return "".into();
    }
    String::from_utf8_lossy(slice::from_raw_parts(at as *const u8, bytes as usize))
}
