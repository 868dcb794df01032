//! 16-bit floats as their bits: Rust 1.63 has no name for them.

/// IEEE 754 binary16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// bfloat16: the upper half of an `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl F16 {
    /// Rounds to the nearest, to even on ties.
    pub fn from_f32(value: f32) -> F16 {
        let bits = value.to_bits();
        let sign = (bits >> 16 & 0x8000) as u16;
        let magnitude = bits & 0x7FFF_FFFF;
        let rounded = if magnitude > 0x7F80_0000 {
            0x7E00
        } else if magnitude >= 0x4780_0000 {
            0x7C00 // 65536 and more; what lies between the largest and it rounds up below
        } else if magnitude >= 0x3880_0000 {
            // Exponents from -14 on: bias 127 becomes 15, and a carry out of the fraction is the next exponent.
            nearest_even(magnitude - (112 << 23), 13)
        } else {
            // Subnormal: a multiple of 2^-24. Adding 0.5, whose last place is 2^-24, rounds in the hardware's way.
            (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()
        };
        F16(sign | rounded as u16)
    }

    /// Exact.
    pub fn to_f32(self) -> f32 {
        let exponent = self.0 >> 10 & 31;
        let fraction = u32::from(self.0 & 0x3FF);
        let magnitude = match exponent {
            0 => fraction as f32 / 16_777_216.0,
            31 => f32::from_bits(0x7F80_0000 | fraction << 13),
            _ => f32::from_bits((u32::from(exponent) + 112) << 23 | fraction << 13),
        };
        if self.0 & 0x8000 != 0 {
            -magnitude
        } else {
            magnitude
        }
    }
}

impl Bf16 {
    /// Rounds to the nearest, to even on ties.
    pub fn from_f32(value: f32) -> Bf16 {
        let bits = value.to_bits();
        if value.is_nan() {
            return Bf16((bits >> 16) as u16 | 0x40); // stays a NaN when its payload is cut off
        }
        Bf16(nearest_even(bits, 16) as u16)
    }

    /// Exact.
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

macro_rules! slices {
    ($type:ident) => {
        impl $type {
            /// Slices of bits are slices of this type, and nothing is copied: those of the crate `half` are
            /// `F16::slice(x.reinterpret_cast())`, by its trait `HalfFloatSliceExt`.
            ///
            /// ```
            /// let bits = [0x3C00u16, 0xC000];
            /// assert_eq!(metal_marlin::F16::slice(&bits)[1].to_f32(), -2.0);
            /// ```
            pub fn slice(bits: &[u16]) -> &[$type] {
                // SAFETY: the type is a transparent u16, and every u16 is a value of it.
                unsafe { std::slice::from_raw_parts(bits.as_ptr().cast(), bits.len()) }
            }

            /// The same, to be written.
            pub fn slice_mut(bits: &mut [u16]) -> &mut [$type] {
                // SAFETY: likewise, the other way as well.
                unsafe { std::slice::from_raw_parts_mut(bits.as_mut_ptr().cast(), bits.len()) }
            }
        }
    };
}
slices!(F16);
slices!(Bf16);

/// `bits` without the lowest `cut` ones.
fn nearest_even(bits: u32, cut: u32) -> u32 {
    let kept = bits >> cut;
    let rest = bits & ((1 << cut) - 1);
    let half = 1 << (cut - 1);
    kept + u32::from(rest > half || (rest == half && kept & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_the_way_to_f32_and_back() {
        for bits in 0..=u16::MAX {
            let f16 = F16(bits);
            if f16.to_f32().is_nan() {
                assert!(F16::from_f32(f16.to_f32()).to_f32().is_nan());
            } else {
                assert_eq!(F16::from_f32(f16.to_f32()), f16);
            }
            let bf16 = Bf16(bits);
            if bf16.to_f32().is_nan() {
                assert!(Bf16::from_f32(bf16.to_f32()).to_f32().is_nan());
            } else {
                assert_eq!(Bf16::from_f32(bf16.to_f32()), bf16);
            }
        }
    }

    /// Between any two neighbors: the midpoint goes to the even one, what lies beside it to the nearer one.
    #[test]
    fn what_lies_between_rounds_to_the_nearest_and_to_even() {
        fn check(low: u16, to: impl Fn(u16) -> f32, from: impl Fn(f32) -> u16) {
            let (a, b) = (to(low), to(low + 1));
            let middle = ((f64::from(a) + f64::from(b)) / 2.0) as f32;
            assert_eq!(from(middle), low + (low & 1), "the middle of {a} and {b}");
            assert_eq!(from(f32::from_bits(middle.to_bits() - 1)), low);
            assert_eq!(from(f32::from_bits(middle.to_bits() + 1)), low + 1);
            assert_eq!(from(-middle), 0x8000 | (low + (low & 1)));
        }
        for low in 0..0x7BFF {
            check(low, |bits| F16(bits).to_f32(), |value| F16::from_f32(value).0);
        }
        for low in 1..0x7F7F {
            check(low, |bits| Bf16(bits).to_f32(), |value| Bf16::from_f32(value).0);
        }
        assert_eq!(F16::from_f32(65519.996).0, 0x7BFF);
        assert_eq!(F16::from_f32(65520.0).0, 0x7C00);
        assert_eq!(F16::from_f32(f32::MAX).0, 0x7C00);
        assert_eq!(Bf16::from_f32(f32::MAX).0, 0x7F80);
        assert_eq!(F16::from_f32(-0.0).0, 0x8000);
    }
}
