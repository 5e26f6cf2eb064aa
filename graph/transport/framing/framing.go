// Package framing ends connections at requests that a proxy may frame otherwise than
// net/http, or whose heads have too many fields.
package framing

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/rockpool/rockpool/runtime"
)

// A Reader follows the requests of one connection by their bytes, as net/http does,
// and ends it at a request with both Content-Length and Transfer-Encoding, or with
// Transfer-Encoding in HTTP/1.0. A proxy may see another end of such a request than
// net/http, which takes it and forgets that there were both: what a client sends
// after it could then be answered to another client (RFC 9112, sections 6.1 and 11.2).
//
// It also ends a head of more than maxFields fields: of many short ones net/http makes
// 15 times the memory of their text.
//
// It gives net/http such a head without the rest, with a header field of its own, which
// [Refuse] answers. So the client gets its answer in its turn, after those
// to the requests before.
type Reader struct {
	Refused func(why Reason) // required; called once

	state  state
	line   []byte // of a head, or about a chunk, that hasn't ended; its start and end where cut
	cut    bool   // the middle of line is lost
	coded  bool   // the head has Transfer-Encoding
	sized  bool   // the head has Content-Length
	modern bool   // the request is of HTTP/1.1
	fields int    // of the head
	left   int64  // bytes of the body, or of the chunk

	instead []byte // is read from now on, and then the end
	over    bool
}

// A Reason is why a request is refused.
type Reason string

// The reasons.
const (
	Lengths Reason = "FRAMING" // its length was sent twice
	Fields  Reason = "FIELDS"  // it has too many header fields
)

type state int

const (
	start     state = iota // before a request; line ends are skipped
	inRequest              // in its first line
	inHead
	inBody
	inSize // of a chunk
	inChunk
	inChunkEnd
	inTrailer
	off // it isn't HTTP any more
)

const header = "Rockpool-Framing"

// ending ends a head that is refused, for a reason.
const ending = header + ": %s\r\nConnection: close\r\n\r\n"

// maxFields is how many fields a head may have.
const maxFields = 100

// Refuse answers requests whose head a Reader has ended, by refuse. The
// connection ends then. It refuses a request of HTTP/2, which no Reader follows, for its
// number of fields alone.
func Refuse(refuse func(w http.ResponseWriter, status int, err *runtime.Error), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why, refused := r.Header[header]
		tooMany := refused && why[0] == string(Fields)
		if r.ProtoMajor == 2 {
			refused, tooMany = false, count(r.Header) > maxFields
		}
		if !refused && !tooMany {
			next.ServeHTTP(w, r)
			return
		}
		if refused {
			w.Header().Set("Connection", "close")
		}
		if tooMany {
			refuse(w, http.StatusRequestHeaderFieldsTooLarge, runtime.Errorf(runtime.CodeLimitExceeded, "a request has at most %d header fields", maxFields))
			return
		}
		refuse(w, http.StatusBadRequest, runtime.Errorf(runtime.CodeInvalidInput,
			"a request has either Content-Length, which is one number, or Transfer-Encoding, which needs HTTP/1.1"))
	})
}

func count(header http.Header) (fields int) {
	for _, values := range header {
		fields += len(values)
	}
	return fields
}

// Off says that what comes isn't HTTP any more.
func (f *Reader) Off() { f.state = off }

// Read reads from the peer.
func (f *Reader) Read(conn net.Conn, p []byte) (int, error) {
	if f.over {
		n := copy(p, f.instead)
		if f.instead = f.instead[n:]; n == 0 && len(p) > 0 {
			return 0, io.EOF
		}
		return n, nil
	}
	n, err := conn.Read(p)
	if n > 0 && f.state != off {
		if taken := f.scan(p[:n]); taken < n || f.over {
			f.over, f.line = true, nil
			return taken, nil
		}
	}
	return n, err
}

// scan goes on with what was read, and returns how much of it may be given away.
// After that the connection is over.
func (f *Reader) scan(p []byte) int {
	for at := 0; at < len(p); {
		switch f.state {
		case start:
			if p[at] == '\r' || p[at] == '\n' {
				at++
				continue
			}
			f.state, f.coded, f.sized, f.left, f.fields = inRequest, false, false, 0, 0
		case inBody, inChunk:
			n := min(f.left, int64(len(p)-at))
			at += int(n)
			f.left -= n
			switch {
			case f.left > 0:
			case f.state == inBody:
				f.state = start
			default:
				f.state = inChunkEnd
			}
		default:
			end := bytes.IndexByte(p[at:], '\n')
			if end < 0 {
				f.keep(p[at:])
				return len(p)
			}
			line := p[at : at+end]
			if len(f.line) > 0 {
				f.keep(line)
				line = f.line
			}
			at += end + 1
			wrong := !f.end(line)
			f.line, f.cut = f.line[:0], false
			if wrong {
				f.over = true
				return at
			}
		}
	}
	return len(p)
}

// Of a longer line the first and the last longLine bytes are kept, if it comes in
// several reads and is longer than both. A field's name, and the size of a chunk, are
// in the first, the version in the last.
const longLine = 128

func (f *Reader) keep(part []byte) {
	f.line = append(f.line, part...)
	if len(f.line) > 2*longLine {
		f.line = append(f.line[:longLine], f.line[len(f.line)-longLine:]...)
		f.cut = true
	}
}

// end takes in a line without its '\n'. It reports whether the connection may go on.
func (f *Reader) end(line []byte) bool {
	line, crlf := bytes.CutSuffix(line, []byte("\r"))
	switch f.state {
	case inRequest:
		f.modern = bytes.HasSuffix(line, []byte(" HTTP/1.1"))
		f.state = inHead
	case inHead:
		if len(line) > 0 {
			return f.field(line)
		}
		switch {
		case f.coded:
			f.state = inSize
		case f.left > 0:
			f.state = inBody
		default:
			f.state = start
		}
	case inSize:
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseUint(string(bytes.TrimRight(size, " \t")), 16, 63)
		if f.left = int64(n); err != nil || !crlf {
			return false // net/http gives up, too
		}
		if f.state = inChunk; n == 0 {
			f.state = inTrailer
		}
	case inChunkEnd:
		f.state = inSize
		return crlf && len(line) == 0
	case inTrailer:
		if len(line) == 0 {
			f.state = start
		}
	}
	return true
}

// field takes in a line of the head. One that goes on with the line before (obs-fold)
// counts for itself, too: somebody may take it so. A long line is refused where its
// middle could say how long the body is.
func (f *Reader) field(line []byte) bool {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if f.fields++; f.fields > maxFields {
		return f.refuse(Fields)
	}
	folded := line[0] == ' ' || line[0] == '\t'
	name = bytes.TrimSpace(name)
	switch long := f.cut || len(line) > 2*longLine; {
	case long && (folded || bytes.EqualFold(name, []byte("Transfer-Encoding")) || bytes.EqualFold(name, []byte("Content-Length"))):
		return f.refuse(Lengths)
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		f.coded = true
	case bytes.EqualFold(name, []byte("Content-Length")):
		f.sized = true
		n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 63)
		if f.left = int64(n); err != nil {
			return f.refuse(Lengths)
		}
	}
	if f.coded && (f.sized || !f.modern) {
		return f.refuse(Lengths)
	}
	return true
}

func (f *Reader) refuse(why Reason) bool {
	f.Refused(why)
	f.instead = fmt.Appendf(nil, ending, why)
	return false
}
