//! Every checkpoint of tests/data, against the true values that lie beside it.

mod common;
use common::*;
use metal_marlin::*;

/// The true values of a layer.
fn decoded(folder: &str, layer: &str) -> Vec<f32> {
    let file = library().open(data(folder).join("decoded.safetensors")).unwrap();
    let all = file.tensor(layer).unwrap().to_vec::<f32>().unwrap();
    all
}

fn same_bits(found: &[f32], expected: &[f32]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits())
}

#[test]
fn every_layer_of_every_checkpoint_is_exact() {
    let context = context();
    let mut layers = 0;
    for entry in std::fs::read_dir(data("")).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir()) {
        let folder = entry.file_name().into_string().unwrap();
        let file = open(&folder);
        for layer in file.layers() {
            let layer = layer.unwrap();
            assert_eq!(layer.status, Status::OK, "{folder}: {}", layer.name);
            if layer.format == Format::NONE {
                continue;
            }
            let truth = decoded(&folder, &layer.name);
            for expert in 0..layer.experts as usize {
                let shard = Shard { first: [0, 0, expert], count: [0, 0, usize::from(layer.experts > 1)] };
                let weights = Load::new(&file).shard(&layer.name, shard).load(&context).unwrap();
                let expected = &truth[expert * layer.n * layer.k..][..layer.n * layer.k];
                assert!(same_bits(&values(&weights), expected), "{folder}: {}", layer.name);
                assert_eq!(weights.info().unwrap().name, layer.name);
                layers += 1;
            }
        }
    }
    assert!(layers > 40, "{layers}");
}

#[test]
fn layers_side_by_side_and_parts_of_them() {
    let file = open("sharded-gptq");
    let names: Vec<String> = file.layers().map(|layer| layer.unwrap().name.into_owned()).collect();
    assert_eq!(names.len(), 3);
    let context = context();
    let half = Shard { first: [32, 0, 0], count: [16, 0, 0] };
    let weights = Load::new(&file).layer(&names[1]).shard(&names[0], half).load(&context).unwrap();
    let (first, second) = (decoded("sharded-gptq", &names[1]), decoded("sharded-gptq", &names[0]));
    assert!(same_bits(&values(&weights), &[&first[..], &second[32 * 128..48 * 128]].concat()));
    drop((file, context));
    assert_eq!(weights.info().unwrap().name, names[1]);

    let file = open("sharded-gptq");
    let load = |shard| Load::new(&file).shard(&names[0], shard).load(weights.context());
    assert_fails(load(Shard { first: [65, 0, 0], count: [0; 3] }), Status::SHAPE, "65");
    assert_fails(load(Shard { first: [usize::MAX; 3], count: [usize::MAX; 3] }), Status::SHAPE, "");
}

#[test]
fn floats_quantized_on_load() {
    let (file, name) = (open("float-f16"), "encoder.layer.0.attention.self.query");
    let layer = file.layers().next().unwrap().unwrap();
    assert_eq!((layer.format, layer.dtype), (Format::NONE, Dtype::F16));
    let name = if layer.name == name { name } else { panic!("{}", layer.name) };
    let floats = Weights::load(&context(), &file, name).unwrap();
    let kept = floats.info().unwrap();
    assert_eq!((kept.format, kept.dtype), (Format::FLOAT16, Dtype::F16));
    let norms = vec![1.0f32; layer.k];
    let weights =
        Load::new(&file).layer(name).column_norms(&norms).quantize(Format::INT4, 64).scales_mse().load(&context()).unwrap();
    let info = weights.info().unwrap();
    assert_eq!((info.format, info.group_size), (Format::INT4, 64));
    assert!(info.flags.contains(LayerFlags::SPARSE_2_4) && info.kept_share < 1.0);
    let dense = Load::new(&file).layer(name).quantize(Format::INT4, 64).obeys_2_4().load(&context());
    assert_fails(dense, Status::FORMAT, "");
}

#[test]
fn tensors() {
    let file = open("float-bf16");
    let tensor = file.tensor("encoder.layer.0.attention.self.query.weight").unwrap();
    assert_eq!((tensor.dtype(), tensor.rows(), tensor.cols()), (Dtype::BF16, 96, 384));
    let copy: Vec<Bf16> = tensor.to_vec().unwrap();
    let floats: Vec<f32> = copy.iter().map(|x| x.to_f32()).collect();
    assert!(same_bits(&floats, &decoded("float-bf16", "encoder.layer.0.attention.self.query")));
    assert_fails(tensor.to_vec::<f32>(), Status::ARGUMENT, "bf16, not f32");
    assert_fails(file.tensor("no.such.tensor"), Status::NOT_FOUND, "no.such.tensor");
    assert_fails(file.tensor("a\0b"), Status::ARGUMENT, "NUL");
    // SAFETY: nobody changes tests/data.
    let bytes = unsafe { tensor.bytes() }.unwrap();
    assert_eq!(bytes.len(), 96 * 384 * 2);
    assert_eq!(u16::from_le_bytes([bytes[0], bytes[1]]), copy[0].0);
    // As an operand where it lies, when the file has it aligned.
    match tensor.matrix::<Bf16>() {
        Ok(w) => {
            let weights = Pack::floats(Format::INT8, w).pack(&context()).unwrap();
            assert_eq!(weights.info().unwrap().n, 96);
        }
        Err(e) => assert!(e.message().contains("not aligned") && bytes.as_ptr() as usize % 2 == 1, "{e}"),
    }
}

#[test]
fn a_trusted_layout() {
    let options = OpenOptions::new().layout(Layout::GPTQ_V1).gptq_zero_f(GptqZeroF::WRAP);
    let file = options.open_with(&library(), data("gptq-v1-sym-g128")).unwrap();
    assert_eq!(file.layers().next().unwrap().unwrap().layout, Layout::GPTQ_V1);
    assert_fails(OpenOptions::new().layout(Layout(99)).open_with(&library(), data("ct-mxfp4")), Status::ARGUMENT, "99");
}

#[test]
fn the_order_of_stacks_that_a_file_leaves_open() {
    let header = br#"{"m.experts.odd":{"dtype":"F32","shape":[2,2,2],"data_offsets":[0,32]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header);
    bytes.extend((0..8).flat_map(|i| (i as f32).to_le_bytes()));
    let path = std::env::temp_dir().join(format!("metal-marlin-rust-order-{}.safetensors", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let read = |options: OpenOptions| {
        let file = options.open_with(&library(), &path).unwrap();
        let layer = file.layers().next().unwrap().unwrap();
        if layer.status != Status::OK {
            return Vec::new();
        }
        values(&Load::new(&file).layer(&layer.name).load(&context()).unwrap())
    };
    assert_eq!(read(OpenOptions::new()), []);
    assert_eq!(read(OpenOptions::new().outputs_first(true)), [0., 1., 2., 3.]); // of the first expert
    assert_eq!(read(OpenOptions::new().outputs_first(false)), [0., 2., 1., 3.]);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn conversion_from_file_to_file() {
    let out = std::env::temp_dir().join(format!("metal-marlin-rust-convert-{}", std::process::id()));
    let file = open("float-f32");
    let name = file.layers().next().unwrap().unwrap().name.into_owned();
    let (mut calls, mut outcomes) = (0, Vec::new());
    let convert = |format| Convert::new(&file, format).layer(&name);
    convert(Format::INT4)
        .scheme(Scheme::GPTQ)
        .group_size(64)
        .asymmetric()
        .scales_mse()
        .shard_bytes(1 << 20)
        .log(|_, _| ())
        .progress(|progress| {
            assert!(progress.done_bytes <= progress.total_bytes || progress.total_bytes == 0);
            calls += 1;
            std::ops::ControlFlow::Continue(())
        })
        .on_layer(|outcome| {
            outcomes.push((outcome.status, outcome.name.to_string(), outcome.bytes_before, outcome.bytes_after))
        })
        .write(&out)
        .unwrap();
    assert!(calls > 0);
    assert_eq!((outcomes.len(), outcomes[0].0, &outcomes[0].1), (1, Status::OK, &name));
    assert!(outcomes[0].3 < outcomes[0].2 / 5);
    let written = library().open(&out).unwrap();
    assert_eq!(written.layers().next().unwrap().unwrap().layout, Layout::GPTQ_V2);

    assert_fails(convert(Format::INT4).scheme(Scheme::GPTQ).write(&out), Status::FILE, "");
    convert(Format::INT4).scheme(Scheme::GPTQ).overwrite().dry_run().write(&out).unwrap();
    let gptq = out;
    let out = gptq.with_extension("mxfp4");
    let stopped = convert(Format::MXFP4).overwrite().progress(|_| std::ops::ControlFlow::Break(())).write(&out);
    assert_fails(stopped, Status::CANCELLED, "");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        convert(Format::MXFP4).overwrite().on_layer(|_| panic!("in on_layer")).write(&out)
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"in on_layer"));
    assert_fails(Convert::new(&file, Format::MXFP4).write(&out), Status::ARGUMENT, "no layers");
    let norms = vec![1.0; 384];
    let blocks = |name: &str| convert(Format::NONE).block_type(name).importance(&norms).dry_run();
    let mut written = None;
    blocks("Q5_1").on_layer(|layer| written = Some((layer.format, layer.flags))).write(out.join("blocks.gguf")).unwrap();
    assert_eq!(written, Some((Format::INT5, metal_marlin::LayerFlags::ADDITIVE_ZEROS)));
    assert_fails(blocks("Q9_K").write(out.join("blocks.gguf")), Status::ARGUMENT, "expected one of Q4_0");
    assert_fails(Convert::new(&file, Format::MXFP4).layer("x").write(&out), Status::NOT_FOUND, "x");
    let unfit = convert(Format::INT4).prune_2_4().skip_unfit().scheme(Scheme::MARLIN_24).write(&out);
    assert_fails(unfit, Status::UNSUPPORTED, "no layer is left");
    std::fs::remove_dir_all(gptq).unwrap();
    std::fs::remove_dir_all(out).unwrap_or_default();
}

#[test]
fn a_conversion_on_the_hosts_threads_writes_the_same() {
    // Two stripes of 2^18 weights: fewer are not worth a second task.
    let (n, k) = (1024, 512);
    let header = format!(r#"{{"w.weight":{{"dtype":"F32","shape":[{n},{k}],"data_offsets":[0,{}]}}}}"#, n * k * 4);
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(numbers(n * k, 1).iter().flat_map(|x| x.to_le_bytes()));
    let folder = std::env::temp_dir().join(format!("metal-marlin-rust-threads-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name);
    std::fs::write(path("in.safetensors"), bytes).unwrap();
    let file = library().open(path("in.safetensors")).unwrap();

    let tasks_seen = std::sync::atomic::AtomicUsize::new(0);
    Convert::new(&file, Format::MXFP4).layer("w").write(path("one.gguf")).unwrap();
    Convert::new(&file, Format::MXFP4)
        .layer("w")
        .parallel_for(|tasks| {
            tasks_seen.fetch_add(tasks.count(), std::sync::atomic::Ordering::Relaxed);
            std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(|| tasks.run()))));
        })
        .write(path("two.gguf"))
        .unwrap();
    assert!(tasks_seen.into_inner() >= 2);
    assert!(std::fs::read(path("one.gguf")).unwrap() == std::fs::read(path("two.gguf")).unwrap());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_packed_container_holds_the_same_and_is_used_in_place() {
    let file = open("sharded-gptq");
    let names: Vec<String> = file.layers().map(|layer| layer.unwrap().name.into_owned()).collect();
    let context = context();
    let path = std::env::temp_dir().join(format!("metal-marlin-rust-{}.marlin", std::process::id()));
    let half = Shard { first: [32, 0, 0], count: [16, 0, 0] };
    let save = || {
        Save::new(&file).load(Load::new(&file).layer(&names[0]).layer(&names[1])).load(Load::new(&file).shard(&names[2], half))
    };
    save().rank(1, 2).write(&context, &path).unwrap();
    let packed = library().open(&path).unwrap();
    let joined: Vec<String> = packed.layers().map(|layer| layer.unwrap().name.into_owned()).collect();
    assert_eq!(joined, [format!("{}+{}", names[0], names[1]), names[2].clone()]);
    let expected = Load::new(&file).shard(&names[2], half).load(&context).unwrap();
    let found = Load::new(&packed).layer(&names[2]).load(&context).unwrap();
    assert!(same_bits(&values(&found), &values(&expected)));
    assert_fails(save().write(&context, &path), Status::FILE, "is there already");
    save().overwrite().write(&context, &path).unwrap();
    assert_fails(save().overwrite().rank(2, 2).write(&context, &path), Status::ARGUMENT, "rank");
    std::fs::remove_file(path).unwrap();
}

/// The other dimension of a tensor without elements takes no byte of a file: a loop over it would not end.
#[test]
fn a_tensor_without_elements_costs_nothing() {
    for shape in ["2147483647,0", "4611686018427387904,0", "0,2147483647", "0,4611686018427387904", "3,0"] {
        let header = format!(r#"{{"x":{{"dtype":"F32","shape":[{shape}],"data_offsets":[0,0]}}}}"#);
        let path = std::env::temp_dir().join(format!("metal-marlin-rust-none-{}.safetensors", std::process::id()));
        std::fs::write(&path, [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()).unwrap();
        let file = library().open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(file.tensor("x").unwrap().to_vec::<f32>().unwrap().is_empty(), "{shape}");
    }
}
