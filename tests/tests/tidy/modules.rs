//! Which modules of a crate import each other, read from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

/// A module's or an item's place in its crate, without `crate`.
type ModulePath = Vec<String>;

/// Every module of a crate that has a file, and what it imports.
pub struct Modules {
    imports: BTreeMap<ModulePath, Vec<ModulePath>>,
    /// Names that a module takes into its own namespace, with where they come from.
    names: BTreeMap<ModulePath, BTreeMap<String, ModulePath>>,
}

impl Modules {
    /// Reads a crate's `src`.
    pub fn read(src: &Path) -> Self {
        let mut modules = Self { imports: BTreeMap::new(), names: BTreeMap::new() };
        modules.read_folder(src, &[]);
        modules
    }

    fn read_folder(&mut self, folder: &Path, path: &[String]) {
        for entry in
            std::fs::read_dir(folder).expect("a folder of sources").map(|entry| entry.expect("an entry"))
        {
            let file = entry.path();
            let name = file.file_stem().and_then(|stem| stem.to_str()).expect("a name in UTF-8").to_owned();
            let inner = [path, std::slice::from_ref(&name)].concat();
            if file.is_dir() {
                self.read_folder(&file, &inner);
            } else if file.extension().is_some_and(|extension| extension == "rs") {
                let is_root = matches!(name.as_str(), "lib" | "main" | "mod");
                self.read_file(&file, if is_root { path.to_vec() } else { inner });
            }
        }
    }

    fn read_file(&mut self, file: &Path, module: ModulePath) {
        let text = std::fs::read_to_string(file).expect("a source is text");
        let tree = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        // A file whose module is compiled for tests alone says so where it is declared; its name says it
        // here.
        if module.last().is_some_and(|name| name == "tests" || name.ends_with("_tests")) {
            return;
        }
        let mut reader = Reader { module: module.clone(), imports: Vec::new(), names: BTreeMap::new() };
        reader.visit_file(&tree);
        self.imports.insert(module.clone(), reader.imports);
        self.names.insert(module, reader.names);
    }

    /// Groups of modules of one parent of which each imports, directly or not, all others; each group sorted.
    pub fn cycles(&self) -> Vec<Vec<String>> {
        let mut edges: BTreeMap<ModulePath, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (module, targets) in &self.imports {
            for target in targets {
                let target = self.resolve(target);
                let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) {
                    let parent = module[..shared].to_vec();
                    if self.is_module(&parent, to) {
                        edges.entry(parent).or_default().entry(from.clone()).or_default().insert(to.clone());
                    }
                }
            }
        }
        let in_parent = |(parent, edges): (&ModulePath, &BTreeMap<String, BTreeSet<String>>)| {
            let full = |name: &String| [parent.as_slice(), std::slice::from_ref(name)].concat().join("::");
            cycles_of(edges).into_iter().map(|group| group.iter().map(full).collect()).collect::<Vec<_>>()
        };
        edges.iter().flat_map(in_parent).collect()
    }

    fn is_module(&self, parent: &[String], name: &str) -> bool {
        let path = [parent, &[name.to_owned()]].concat();
        self.imports.contains_key(&path) || self.imports.keys().any(|module| module.starts_with(&path))
    }

    /// Follows names that a module has imported to where they are defined.
    fn resolve(&self, path: &[String]) -> ModulePath {
        let mut path = path.to_vec();
        // Two modules that import each other's names end here, too.
        for _ in 0..8 {
            let step = (0..path.len()).find_map(|at| {
                let origin = self.names.get(&path[..at])?.get(&path[at])?;
                Some([origin.as_slice(), &path[at + 1..]].concat())
            });
            match step {
                Some(next) if next != path => path = next,
                _ => break,
            }
        }
        path
    }
}

/// The groups of names that reach each other.
fn cycles_of(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&String> = edges.get(from).into_iter().flatten().collect();
        while let Some(name) = next.pop() {
            if seen.insert(name.clone()) {
                next.extend(edges.get(name).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = edges.keys().map(|name| (name, reach(name))).collect();
    let mut groups = BTreeSet::new();
    for (name, all) in &reached {
        let group: Vec<String> = all
            .iter()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(*name)))
            .cloned()
            .collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

/// Reads one file's imports.
struct Reader {
    module: ModulePath,
    imports: Vec<ModulePath>,
    names: BTreeMap<String, ModulePath>,
}

impl Reader {
    /// A path of the own crate from its crate's root; `None` for other crates and for local names.
    fn absolute(&self, segments: &[String]) -> Option<ModulePath> {
        let mut base = match segments.first()?.as_str() {
            "crate" => Vec::new(),
            "self" => self.module.clone(),
            "super" => self.module[..self.module.len().checked_sub(1)?].to_vec(),
            _ => return None,
        };
        let mut rest = &segments[1..];
        while rest.first().is_some_and(|segment| segment == "super") {
            base.pop()?;
            rest = &rest[1..];
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    fn import(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|item| self.import(item, before)),
            UseTree::Name(name) => self.import_name(name.ident.to_string(), &name.ident.to_string(), before),
            UseTree::Rename(name) => {
                self.import_name(name.rename.to_string(), &name.ident.to_string(), before)
            }
            UseTree::Glob(_) => self.imports.extend(self.absolute(before)),
        }
    }

    fn import_name(&mut self, known_as: String, name: &str, before: &[String]) {
        let mut segments = before.to_vec();
        let known_as = if name == "self" { before.last().cloned().unwrap_or(known_as) } else { known_as };
        if name != "self" {
            segments.push(name.to_owned());
        }
        // `pub use child::Name` of edition 2018 names a child without `self`.
        let local = || Some([self.module.as_slice(), &segments].concat());
        let target = self.absolute(&segments).or_else(|| (segments.len() > 1).then(local).flatten());
        if let Some(target) = target {
            self.imports.push(target.clone());
            self.names.insert(known_as, target);
        }
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(ItemMod { attrs, .. }) | Item::Use(ItemUse { attrs, .. }) => attrs.as_slice(),
            Item::Fn(function) => &function.attrs,
            Item::Impl(implementation) => &implementation.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.imports.extend(self.absolute(&segments));
        visit::visit_path(self, path);
    }
}

#[test]
fn cycles_are_found_and_trees_are_not() {
    let edges = |all: &[(&str, &str)]| {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in all {
            edges.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        edges
    };
    assert!(cycles_of(&edges(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    assert_eq!(cycles_of(&edges(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")])), [["a", "b", "c"]]);
}
