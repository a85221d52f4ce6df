//! Labs of the tests' own.

use crate::World;
use crate::program::Ended;

/// A lab that is up, and is taken down whatever comes of its test.
pub struct UpLab<'a> {
    world: &'a World,
    /// Another one in each test process: labs of all users of this machine stand side by side.
    pub name: String,
    /// How it came up.
    pub up: Ended,
}

impl<'a> UpLab<'a> {
    /// Brings up what `file` says, which does not name it.
    pub fn new(world: &'a World, what: &str, file: &str) -> Self {
        let name = format!("{what}-{}", std::process::id());
        world.write("lab.toml", format!("name = '{name}'\n{file}"));
        let up = world.run(&["lab", "up", "lab.toml"]).code(0);
        Self { world, name, up }
    }

    /// Runs `verb --lab NAME` to its end.
    pub fn run(&self, verb: &str, arguments: &[&str]) -> Ended {
        self.world.run(&[&[verb, "--lab", &self.name][..], arguments].concat())
    }
}

impl Drop for UpLab<'_> {
    fn drop(&mut self) {
        // It may be down already.
        let _ = self.world.command(&["lab", "down", &self.name]).output();
    }
}
