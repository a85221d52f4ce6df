//! Which source is connected where, and to which group it belongs.

use reactor::Token;

#[derive(Debug)]
pub(super) struct SourceRegistry {
    connection_of: Vec<Option<Token>>,
    /// `u32::MAX`: never connected. Kept after a disconnection.
    group_of: Vec<u32>,
    pub(super) connected: u32,
    pub(super) ever_connected: u32,
}

impl SourceRegistry {
    pub(super) fn new(sources: u32) -> Self {
        let (connection_of, group_of) = (vec![None; sources as usize], vec![u32::MAX; sources as usize]);
        Self { connection_of, group_of, connected: 0, ever_connected: 0 }
    }

    /// Registers a source's connection; returns whether the source was connected before.
    pub(super) fn connect(&mut self, source: u32, connection: Token, group: u32) -> bool {
        let at = source as usize;
        let was_connected = self.group_of[at] != u32::MAX;
        (self.connection_of[at], self.group_of[at]) = (Some(connection), group);
        self.connected += 1;
        self.ever_connected += u32::from(!was_connected);
        was_connected
    }

    /// Removes a source's connection; `false`: the source has another one.
    pub(super) fn disconnect(&mut self, source: u32, connection: Token) -> bool {
        let is_current = self.connection(source) == Some(connection);
        if is_current {
            self.connection_of[source as usize] = None;
            self.connected = self.connected.saturating_sub(1);
        }
        is_current
    }

    pub(super) fn connection(&self, source: u32) -> Option<Token> {
        self.connection_of.get(source as usize).copied().flatten()
    }

    pub(super) fn is_connected(&self, source: u32) -> bool {
        self.connection(source).is_some()
    }

    /// `u32::MAX`: unknown.
    pub(super) fn group(&self, source: u32) -> u32 {
        self.group_of.get(source as usize).copied().unwrap_or(u32::MAX)
    }

    /// A connected source of the group.
    pub(super) fn member(&self, group: u32) -> Option<u32> {
        let is_member = |source: &u32| self.group(*source) == group && self.is_connected(*source);
        (0..self.sources()).find(is_member)
    }

    pub(super) fn sources(&self) -> u32 {
        self.group_of.len() as u32
    }
}
