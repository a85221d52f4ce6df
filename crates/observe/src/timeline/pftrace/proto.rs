//! The part of Protocol Buffers' wire format that is needed here:
//! <https://protobuf.dev/programming-guides/encoding/>.

#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Empties it for the next one.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(super) fn integer(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint((u64::from(field) << 3) | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    pub(super) fn message(&mut self, field: u32, message: &Message) -> &mut Self {
        self.bytes(field, &message.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_match_the_protobuf_encoding() {
        let mut inner = Message::default();
        inner.integer(1, 150);
        let mut outer = Message::default();
        outer.message(3, &inner).text(2, "hi");
        // The examples of the format's own description.
        assert_eq!(outer.into_bytes(), [0x1a, 3, 0x08, 0x96, 1, 0x12, 2, b'h', b'i']);
    }
}
