//! The frames of SPDY/3.1, as far as port forwarding needs them: streams that a client opens, data, pings.
//!
//! A control frame is `80 03 type flags length`, a data frame `stream flags length`; all numbers are big-endian, the
//! length has 24 bits.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The most that a control frame of a client may hold: three short headers need less than a hundred bytes.
const MOST_CONTROL: usize = 64 * 1024;
const FIN: u8 = 1;
const CONTROL: u32 = 0x8003_0000;
const HEAD: usize = 8;
const SYN_STREAM: u32 = 1;
const SYN_REPLY: u32 = 2;
const RST_STREAM: u32 = 3;
const PING: u32 = 6;
const GOAWAY: u32 = 7;
/// A stream as a frame names it: the highest bit is reserved.
const STREAM: u32 = 0x7fff_ffff;

/// What a client sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A stream begins, with its compressed headers.
    Open { stream: u32, headers: Bytes },
    /// Bytes on a stream; `last` closes the client's half.
    Data { stream: u32, data: Bytes, last: bool },
    /// A stream ends at once.
    Reset { stream: u32 },
    /// To be sent back as it is.
    Ping { id: u32 },
    /// The client opens nothing more.
    GoAway,
}

/// Why a connection cannot go on.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    #[error("a control frame of {0} bytes")]
    TooLong(usize),
    #[error("a control frame of another version: {0:#x}")]
    Version(u32),
    #[error("a control frame that is too short for its type")]
    TooShort,
    #[error("headers that cannot be read: {0}")]
    Headers(&'static str),
}

/// Puts frames together from the pieces that arrive.
#[derive(Default)]
pub(super) struct Decoder(BytesMut);

impl Decoder {
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
    }

    /// The next whole frame. Frames of other types are left out.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Broken> {
        loop {
            let Some((mut head, _)) = self.0.split_at_checked(HEAD) else { return Ok(None) };
            let (first, second) = (head.get_u32(), head.get_u32());
            let (flags, length) = ((second >> 24) as u8, (second & 0x00ff_ffff) as usize);
            let is_control = first & !STREAM != 0;
            if is_control && length > MOST_CONTROL {
                return Err(Broken::TooLong(length));
            }
            if self.0.len() < HEAD + length {
                return Ok(None);
            }
            self.0.advance(HEAD);
            let body = self.0.split_to(length).freeze();
            if !is_control {
                return Ok(Some(Frame::Data { stream: first, data: body, last: flags & FIN != 0 }));
            }
            if first & 0xffff_0000 != CONTROL {
                return Err(Broken::Version(first));
            }
            if let Some(frame) = control(first & 0xffff, body)? {
                return Ok(Some(frame));
            }
        }
    }
}

fn control(kind: u32, mut body: Bytes) -> Result<Option<Frame>, Broken> {
    if kind == GOAWAY {
        return Ok(Some(Frame::GoAway));
    }
    // Stream, associated stream, priority and slot.
    let needed = if kind == SYN_STREAM { 10 } else { 4 };
    if !matches!(kind, SYN_STREAM | RST_STREAM | PING) {
        return Ok(None);
    }
    if body.len() < needed {
        return Err(Broken::TooShort);
    }
    let number = body.get_u32();
    Ok(Some(match kind {
        SYN_STREAM => {
            body.advance(needed - 4);
            Frame::Open { stream: number & STREAM, headers: body }
        }
        RST_STREAM => Frame::Reset { stream: number & STREAM },
        _ => Frame::Ping { id: number },
    }))
}

/// Bytes on a stream; `last` closes our half of it.
pub(super) fn data(stream: u32, data: &[u8], last: bool) -> Bytes {
    framed(stream, if last { FIN } else { 0 }, data)
}

/// Takes a stream that the client opened.
pub(super) fn reply(stream: u32, headers: &[u8]) -> Bytes {
    framed(CONTROL | SYN_REPLY, 0, &[&stream.to_be_bytes(), headers].concat())
}

/// Answers a ping.
pub(super) fn pong(id: u32) -> Bytes {
    framed(CONTROL | PING, 0, &id.to_be_bytes())
}

/// Refuses a stream (status 3, REFUSED_STREAM).
pub(super) fn refuse(stream: u32) -> Bytes {
    framed(CONTROL | RST_STREAM, 0, &[stream.to_be_bytes(), 3_u32.to_be_bytes()].concat())
}

fn framed(first: u32, flags: u8, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD + body.len());
    frame.put_u32(first);
    frame.put_u8(flags);
    frame.put_uint(body.len() as u64, 3);
    frame.put_slice(body);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_whole_however_they_arrive_and_others_are_left_out() {
        let bytes = [
            &b"\x80\x03\x00\x01\x00\x00\x00\x0c\x80\x00\x00\x05\x00\x00\x00\x00\x00\x00hh"[..],
            b"\x80\x03\x00\x04\x00\x00\x00\x02ab",
            b"\x00\x00\x00\x05\x01\x00\x00\x03abc",
            b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x07",
            b"\x80\x03\x00\x03\x00\x00\x00\x08\x00\x00\x00\x05\x00\x00\x00\x01",
            b"\x80\x03\x00\x07\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00",
        ]
        .concat();
        let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
        for byte in bytes {
            decoder.push(&[byte]);
            frames.extend(decoder.next().unwrap());
        }
        assert_eq!(
            frames,
            [
                Frame::Open { stream: 5, headers: Bytes::from_static(b"hh") },
                Frame::Data { stream: 5, data: Bytes::from_static(b"abc"), last: true },
                Frame::Ping { id: 7 },
                Frame::Reset { stream: 5 },
                Frame::GoAway,
            ]
        );
    }

    #[test]
    fn what_is_no_frame_is_refused_before_it_is_waited_for() {
        for (bytes, expected) in [
            (&b"\x80\x03\x00\x01\x00\xff\xff\xff"[..], Broken::TooLong(0x00ff_ffff)),
            (b"\x80\x02\x00\x01\x00\x00\x00\x00", Broken::Version(0x8002_0001)),
            (b"\x80\x03\x00\x01\x00\x00\x00\x04\x00\x00\x00\x05", Broken::TooShort),
            (b"\x80\x03\x00\x06\x00\x00\x00\x00", Broken::TooShort),
        ] {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            assert_eq!(decoder.next(), Err(expected), "{bytes:?}");
        }
    }

    #[test]
    fn frames_are_written_as_the_protocol_says() {
        assert_eq!(data(5, b"abc", true), Bytes::from_static(b"\x00\x00\x00\x05\x01\x00\x00\x03abc"));
        assert_eq!(pong(7), Bytes::from_static(b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x07"));
        assert_eq!(reply(5, b"h"), Bytes::from_static(b"\x80\x03\x00\x02\x00\x00\x00\x05\x00\x00\x00\x05h"));
        assert_eq!(refuse(5), Bytes::from_static(b"\x80\x03\x00\x03\x00\x00\x00\x08\x00\x00\x00\x05\x00\x00\x00\x03"));
    }
}
