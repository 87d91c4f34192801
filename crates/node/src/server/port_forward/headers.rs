//! The headers of SPDY/3.1: one zlib stream for all of a connection's, over a dictionary that the protocol gives.

use super::frame::Broken;
use bytes::Buf;
use std::collections::BTreeMap;
use zlib_rs::{Inflate, InflateError, InflateFlush, Status};

/// Words of the dictionary, each with its length before it (SPDY/3.1, 2.6.10.1).
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age \
     allow authorization cache-control connection content-base content-encoding content-language content-length \
     content-location content-md5 content-range content-type date etag expect expires from host if-match \
     if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
     proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
     user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
     keep-alive origin";

/// And what follows them.
const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
     203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
     404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
     Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT\
     chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,\
     publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// Adler-32 of the dictionary, by which a zlib stream names it.
const DICTIONARY: u32 = 0xe3c6_a7c2;

/// The most that the headers of one stream may come to.
const MOST: usize = 64 * 1024;

fn dictionary() -> Vec<u8> {
    let mut dictionary = Vec::with_capacity(1_423);
    for word in WORDS.split_ascii_whitespace() {
        dictionary.extend((word.len() as u32).to_be_bytes());
        dictionary.extend(word.bytes().map(|byte| if byte == b'_' { b' ' } else { byte }));
    }
    dictionary.extend(TEXT.bytes());
    dictionary
}

/// Reads the headers that a client sends, in the order in which it sent them.
pub(super) struct Headers(Inflate);

impl Default for Headers {
    fn default() -> Headers {
        const WINDOW_BITS: u8 = 15;
        Headers(Inflate::new(true, WINDOW_BITS))
    }
}

impl Headers {
    /// The headers of one frame, by lower-case names.
    pub(super) fn read(&mut self, block: &[u8]) -> Result<BTreeMap<String, String>, Broken> {
        let text = self.inflate(block)?;
        let mut rest = text.as_slice();
        let mut headers = BTreeMap::new();
        for _ in 0..number(&mut rest)? {
            let name = string(&mut rest)?;
            headers.insert(name.to_ascii_lowercase(), string(&mut rest)?);
        }
        Ok(headers)
    }

    fn inflate(&mut self, block: &[u8]) -> Result<Vec<u8>, Broken> {
        let (mut text, mut chunk) = (Vec::new(), [0; 1_024]);
        let begin = self.0.total_in();
        loop {
            let taken = usize::try_from(self.0.total_in() - begin).map_err(|_| Broken::Headers("too long"))?;
            let before = self.0.total_out();
            let rest = block.get(taken..).unwrap_or_default();
            match self.0.decompress(rest, &mut chunk, InflateFlush::SyncFlush) {
                Ok(Status::Ok | Status::BufError | Status::StreamEnd) => {}
                Err(InflateError::NeedDict { dict_id: DICTIONARY }) => {
                    self.0.set_dictionary(&dictionary()).map_err(|error| Broken::Headers(error.as_str()))?;
                    continue;
                }
                Err(error) => return Err(Broken::Headers(error.as_str())),
            }
            let new = usize::try_from(self.0.total_out() - before).unwrap_or(chunk.len());
            text.extend_from_slice(chunk.get(..new).unwrap_or_default());
            if text.len() > MOST {
                return Err(Broken::Headers("too long"));
            }
            if new < chunk.len() {
                return Ok(text);
            }
        }
    }
}

fn number(rest: &mut &[u8]) -> Result<u32, Broken> {
    rest.try_get_u32().map_err(|_| Broken::Headers("cut short"))
}

fn string(rest: &mut &[u8]) -> Result<String, Broken> {
    let length = number(rest)? as usize;
    let (text, after) = rest.split_at_checked(length).ok_or(Broken::Headers("cut short"))?;
    *rest = after;
    String::from_utf8(text.to_vec()).map_err(|_| Broken::Headers("not UTF-8"))
}

/// The headers of our replies: none, for each of which that zlib stream goes on by a stored block.
#[derive(Default)]
pub(super) struct NoHeaders {
    begun: bool,
}

impl NoHeaders {
    pub(super) fn next(&mut self) -> Vec<u8> {
        let mut block = Vec::new();
        if !std::mem::replace(&mut self.begun, true) {
            block.extend([0x78, 0xbb]); // deflate with a window of 32 KiB, over a dictionary
            block.extend(DICTIONARY.to_be_bytes());
        }
        // The number of headers, stored; an empty block after it makes the reader hand it out.
        block.extend(*b"\x00\x04\x00\xfb\xff\x00\x00\x00\x00");
        block.extend(*b"\x00\x00\x00\xff\xff");
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zlib_rs::{Deflate, DeflateFlush};

    /// A block as a client makes it.
    fn block(stream: &mut Deflate, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut text = (headers.len() as u32).to_be_bytes().to_vec();
        for part in headers.iter().flat_map(|(name, value)| [name, value]) {
            text.extend((part.len() as u32).to_be_bytes());
            text.extend(part.bytes());
        }
        let (mut out, before) = (vec![0; 4_096], stream.total_out());
        stream.compress(&text, &mut out, DeflateFlush::SyncFlush).unwrap();
        out.truncate(usize::try_from(stream.total_out() - before).unwrap());
        out
    }

    #[test]
    fn the_dictionary_is_the_one_that_streams_name() {
        assert_eq!(dictionary().len(), 1_423);
        let mut stream = Deflate::new(6, true, 15);
        assert_eq!(stream.set_dictionary(&dictionary()).ok(), Some(DICTIONARY));
    }

    #[test]
    fn headers_of_one_stream_after_the_other_are_read() {
        let mut stream = Deflate::new(6, true, 15);
        stream.set_dictionary(&dictionary()).unwrap();
        let mut headers = Headers::default();
        for kind in ["error", "data"] {
            let long = "x".repeat(2_000);
            let sent = [("Streamtype", kind), ("port", "5432"), ("requestid", "0"), ("long", &long)];
            let read = headers.read(&block(&mut stream, &sent)).unwrap();
            assert_eq!((read["streamtype"].as_str(), read["port"].as_str(), read.len()), (kind, "5432", 4));
        }
    }

    #[test]
    fn garbage_is_refused() {
        assert!(matches!(Headers::default().read(b"garbage"), Err(Broken::Headers(_))));
        assert_eq!(Headers::default().read(b""), Err(Broken::Headers("cut short")));
    }

    #[test]
    fn replies_without_headers_are_read_by_any_reader_of_such_a_stream() {
        let (mut ours, mut theirs) = (NoHeaders::default(), Headers::default());
        for _ in 0..3 {
            assert_eq!(theirs.read(&ours.next()), Ok(BTreeMap::new()));
        }
    }
}
