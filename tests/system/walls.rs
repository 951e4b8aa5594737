//! Who may lean on whom, read from the workspace itself.

use crate::support::{check, repository, test};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use libtest_mimic::{Failed, Trial};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

pub fn tests() -> Vec<Trial> {
    vec![
        test("walls::each_crate_leans_only_on_those_it_may", leaning),
        test("walls::the_model_depends_on_nothing_at_all", || {
            let metadata = metadata()?;
            let model = metadata
                .packages
                .iter()
                .find(|package| package.name.as_str() == "model")
                .ok_or("no model")?;
            check(model.dependencies.is_empty(), || {
                format!("model depends on {:?}", model.dependencies)
            })
        }),
        test("walls::forbidden_names_stand_nowhere", names),
        test("walls::only_render_and_output_print", printing),
        test("walls::every_licence_is_one_that_fits", licences),
        test("walls::nothing_can_be_published", || {
            for package in metadata()?.workspace_packages() {
                let closed = package.publish.as_ref().is_some_and(Vec::is_empty);
                check(closed, || format!("{} could be published", package.name))?;
            }
            Ok(())
        }),
    ]
}

/// The workspace as this machine builds it; packages of other systems may not be here and are nobody's business.
fn metadata() -> Result<Metadata, Failed> {
    let version = Command::new("rustc").arg("-vV").output()?;
    let version = String::from_utf8(version.stdout)?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .ok_or("rustc names no host")?;
    let options = ["--offline", "--filter-platform", host].map(str::to_owned).to_vec();
    Ok(MetadataCommand::new()
        .current_dir(repository())
        .other_options(options)
        .exec()?)
}

fn leaning() -> Result<(), Failed> {
    let services = ["frontend", "checkout", "pricing", "inventory"];
    let mut may: BTreeMap<&str, Vec<&str>> =
        BTreeMap::from([("model", vec![]), ("proto", vec![]), ("chassis", vec!["proto"])]);
    for service in services {
        may.insert(service, vec!["chassis", "proto"]);
    }
    // It forwards messages that it knows nothing of.
    may.insert("sidecar", vec!["chassis"]);
    may.insert(
        "harness",
        [&["model", "proto", "chassis", "sidecar"][..], &services[..]].concat(),
    );
    let metadata = metadata()?;
    let ours: BTreeSet<_> = metadata
        .workspace_packages()
        .iter()
        .map(|package| package.name.to_string())
        .collect();
    let known: BTreeSet<_> = may.keys().map(ToString::to_string).collect();
    check(ours == known, || {
        format!("the crates are {ours:?}, the walls know {known:?}")
    })?;
    for package in metadata.workspace_packages() {
        let allowed = &may[package.name.as_str()];
        for dependency in &package.dependencies {
            let fits = !ours.contains(&dependency.name) || allowed.contains(&dependency.name.as_str());
            check(fits, || format!("{} leans on {}", package.name, dependency.name))?;
        }
    }
    Ok(())
}

/// Where a name must not stand: folder or file, exceptions, the names.
const FORBIDDEN: [(&str, &[&str], &[&str]); 8] = [
    ("harness/model", &[], &["tokio", "tonic", "serde", "chassis::"]),
    ("proto/src", &[], &["tonic::transport"]),
    (
        "services/chassis/src",
        &["telemetry.rs", "telemetry"],
        &["opentelemetry::", "opentelemetry_sdk", "opentelemetry_otlp"],
    ),
    ("services/chassis/src", &["control.rs", "process.rs"], &["proto::"]),
    (
        "services/chassis/src",
        &[],
        &["frontend::", "checkout::", "pricing::", "inventory::", "model::"],
    ),
    (
        "services/chassis/src/layers",
        &[],
        &[
            "layers::ledger",
            "layers::trace",
            "layers::deadline",
            "layers::fault",
            "layers::retry",
            "super::ledger",
            "super::trace",
            "super::deadline",
            "super::fault",
            "super::retry",
        ],
    ),
    ("services/sidecar", &[], &["proto::", "shop.v1", "shop::v1"]),
    (
        "services",
        &["chassis"],
        &["opentelemetry", "harness", "tonic::transport"],
    ),
];

fn names() -> Result<(), Failed> {
    for (place, exceptions, names) in FORBIDDEN {
        let files = rust_files(&repository().join(place));
        check(!files.is_empty(), || format!("nothing was searched in {place}"))?;
        for file in files {
            let shown = file.strip_prefix(repository())?.display().to_string();
            if exceptions
                .iter()
                .any(|exception| shown.split('/').any(|part| part == *exception))
            {
                continue;
            }
            let text = std::fs::read_to_string(&file)?;
            for (number, line) in text.lines().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                let found = names.iter().find(|name| code.contains(**name));
                check(found.is_none(), || {
                    format!("{shown}, line {}: names {}", number + 1, found.unwrap_or(&""))
                })?;
            }
        }
    }
    Ok(())
}

fn printing() -> Result<(), Failed> {
    for file in rust_files(&repository().join("harness/src"))
        .into_iter()
        .chain(rust_files(&repository().join("services")))
    {
        let shown = file.strip_prefix(repository())?.display().to_string();
        if shown.starts_with("harness/src/render") || shown == "harness/src/output.rs" {
            continue;
        }
        let text = std::fs::read_to_string(&file)?;
        for name in ["println!", "print!(", "dbg!"] {
            check(!text.contains(name), || format!("{shown} prints ({name})"))?;
        }
    }
    Ok(())
}

/// Licences that fit a product under MIT or Apache-2.0.
const LICENCES: [&str; 10] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Zlib",
    "Unlicense",
    "MIT-0",
];

fn licences() -> Result<(), Failed> {
    let metadata = metadata()?;
    let shipped = shipped(&metadata);
    check(shipped.len() > 50, || {
        format!("only {} packages were looked at", shipped.len())
    })?;
    for package in metadata
        .packages
        .iter()
        .filter(|package| shipped.contains(package.name.as_str()))
    {
        let licence = package.license.clone().unwrap_or_default().replace('/', " OR ");
        // One of the alternatives must fit; all parts of a conjunction must.
        let fits = licence.split(" AND ").all(|part| {
            part.split(" OR ")
                .any(|one| LICENCES.contains(&one.trim_matches(|c| c == '(' || c == ')' || c == ' ')))
        });
        check(fits, || {
            format!("{} {} is under {licence:?}", package.name, package.version)
        })?;
    }
    Ok(())
}

/// Everything the harness is built from, without what only tests need.
fn shipped(metadata: &Metadata) -> BTreeSet<String> {
    let by_name = |name: &str| metadata.packages.iter().find(|package| package.name.as_str() == name);
    let (mut seen, mut open) = (BTreeSet::new(), vec!["harness".to_owned()]);
    while let Some(name) = open.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let dependencies = by_name(&name).into_iter().flat_map(|package| &package.dependencies);
        let normal =
            dependencies.filter(|dependency| dependency.kind != DependencyKind::Development && !dependency.optional);
        open.extend(
            normal
                .map(|dependency| dependency.name.clone())
                .filter(|name| by_name(name).is_some()),
        );
    }
    seen
}

fn rust_files(place: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(place) else {
        return place.is_file().then(|| place.to_owned()).into_iter().collect();
    };
    let mut files = Vec::new();
    for entry in entries.flatten().map(|entry| entry.path()) {
        if entry.is_dir() {
            files.extend(rust_files(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
    files
}
