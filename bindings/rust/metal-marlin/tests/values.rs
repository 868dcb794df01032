//! What checkpoints say about their models.

mod common;
use common::*;
use metal_marlin::*;

fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u64).to_le_bytes()[..], value.as_bytes()].concat()
}

fn array(kind: i32, elements: &[&[u8]]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &(elements.len() as u64).to_le_bytes(), &elements.concat()].concat()
}

#[test]
fn every_type_of_a_gguf() {
    let entries: Vec<(&str, i32, Vec<u8>, Value)> = vec![
        ("u8", 0, vec![255], Value::U64(255)),
        ("i8", 1, i8::MIN.to_le_bytes().to_vec(), Value::I64(-128)),
        ("u16", 2, u16::MAX.to_le_bytes().to_vec(), Value::U64(65535)),
        ("i16", 3, i16::MIN.to_le_bytes().to_vec(), Value::I64(-32768)),
        ("u32", 4, u32::MAX.to_le_bytes().to_vec(), Value::U64(u32::MAX.into())),
        ("i32", 5, i32::MIN.to_le_bytes().to_vec(), Value::I64(i32::MIN.into())),
        ("f32", 6, 0.5f32.to_le_bytes().to_vec(), Value::F64(0.5)),
        ("yes", 7, vec![1], Value::Bool(true)),
        ("text", 8, text("grüß"), Value::String("grüß".into())),
        ("u64", 10, u64::MAX.to_le_bytes().to_vec(), Value::U64(u64::MAX)),
        ("i64", 11, i64::MIN.to_le_bytes().to_vec(), Value::I64(i64::MIN)),
        ("f64", 12, 1e300f64.to_le_bytes().to_vec(), Value::F64(1e300)),
        ("a0", 9, array(0, &[&[255], &[1]]), Value::U64s(vec![255, 1])),
        ("a1", 9, array(1, &[&i8::MIN.to_le_bytes()]), Value::I64s(vec![-128])),
        ("a2", 9, array(2, &[&u16::MAX.to_le_bytes()]), Value::U64s(vec![65535])),
        ("a3", 9, array(3, &[&i16::MIN.to_le_bytes()]), Value::I64s(vec![-32768])),
        ("a4", 9, array(4, &[&u32::MAX.to_le_bytes()]), Value::U64s(vec![u32::MAX.into()])),
        ("a5", 9, array(5, &[&1i32.to_le_bytes(), &(-2i32).to_le_bytes()]), Value::I64s(vec![1, -2])),
        ("a6", 9, array(6, &[&0.5f32.to_le_bytes()]), Value::F64s(vec![0.5])),
        ("a7", 9, array(7, &[&[1], &[0]]), Value::Bools(vec![true, false])),
        ("a8", 9, array(8, &[&text("a"), &text(""), &text("bc")]), Value::Strings(vec!["a".into(), "".into(), "bc".into()])),
        ("a10", 9, array(10, &[&u64::MAX.to_le_bytes()]), Value::U64s(vec![u64::MAX])),
        ("a11", 9, array(11, &[&i64::MIN.to_le_bytes()]), Value::I64s(vec![i64::MIN])),
        ("a12", 9, array(12, &[]), Value::F64s(vec![])),
    ];
    let mut file = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend((entries.len() as u64).to_le_bytes());
    for (key, kind, value, _) in &entries {
        file.extend([text(key), kind.to_le_bytes().to_vec(), value.clone()].concat());
    }
    let path = std::env::temp_dir().join(format!("metal-marlin-rust-values-{}.gguf", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let checkpoint = library().open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for (key, _, _, expected) in &entries {
        assert_eq!(checkpoint.value(key).unwrap().as_ref(), Some(expected), "{key}");
    }
    let all: Vec<_> = checkpoint.values().map(Result::unwrap).collect();
    assert_eq!(all.len(), entries.len());
    for ((key, value), (expected_key, _, _, expected)) in all.iter().zip(&entries) {
        assert_eq!((key.as_ref(), value), (*expected_key, expected));
    }
}

#[test]
fn members_of_config() {
    let checkpoint = open("gptq-v1-sym-g128");
    assert_eq!(checkpoint.value("quantization_config.bits").unwrap(), Some(Value::I64(4)));
    assert_eq!(checkpoint.value("quantization_config.quant_method").unwrap(), Some(Value::String("gptq".into())));
    assert_eq!(checkpoint.value("quantization_config").unwrap(), None);
    assert_fails(checkpoint.value("a\0b"), Status::ARGUMENT, "NUL");
}

#[test]
fn a_split_model() {
    assert_eq!(open("gguf-split").value("general.architecture").unwrap(), Some(Value::String("llama".into())));
}
