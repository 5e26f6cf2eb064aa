package clients

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/rockpool/rockpool/runtime"
)

// A framingReader follows the requests on one connection by their bytes, as net/http does. It ends the
// connection at a request with both Content-Length and Transfer-Encoding, or with Transfer-Encoding
// in HTTP/1.0. net/http accepts such a request and forgets that it had both. A proxy may see its
// end elsewhere. The bytes that a client sends after it could then be answered to another client
// (RFC 9112, sections 6.1 and 11.2).
//
// It also ends a head with more than maxFields fields: for many short fields, net/http uses 15
// times the memory of their text.
//
// It gives net/http the beginning of such a head with a header field of its own, which
// [CheckFraming] finds. So the client gets this response in its turn, after those to earlier requests.
type framingReader struct {
	refused func(why Bound) // required; called once, with Framing or Fields

	state  framingState
	line   []byte // of an unfinished line of a head, or about a chunk; its start and end if cut
	cut    bool   // the middle of line is dropped
	coded  bool   // the head has Transfer-Encoding
	sized  bool   // the head has Content-Length
	modern bool   // the request is HTTP/1.1
	fields int    // number of the head's fields
	left   int64  // remaining bytes of the body, or of the chunk

	instead []byte // is read from now on, then the end
	over    bool
}

// A framingState is the part of the protocol that the next byte belongs to.
type framingState int

const (
	beforeRequest framingState = iota // line ends are skipped
	inRequest                         // in its first line
	inHead
	inBody
	inSize // of a chunk
	inChunk
	inChunkEnd
	inTrailer
	notHTTP // the connection no longer speaks HTTP
)

// framingHeader is the field with which a framingReader marks the head of a refused request, for CheckFraming.
const framingHeader = "Rockpool-Framing"

// framingEnding ends a refused head, with the reason.
const framingEnding = framingHeader + ": %s\r\nConnection: close\r\n\r\n"

// maxFields is the largest number of fields in a head.
const maxFields = 100

// CheckFraming returns the status and the error with which to refuse a request whose head its connection has
// ended, or nil. The connection ends after the response. A request of HTTP/2 is refused only for too many fields.
func CheckFraming(w http.ResponseWriter, r *http.Request) (status int, refused *runtime.Error) {
	why, ended := r.Header[framingHeader]
	tooMany := ended && why[0] == Fields.String()
	if r.ProtoMajor == 2 {
		fields := 0
		for _, values := range r.Header {
			fields += len(values)
		}
		ended, tooMany = false, fields > maxFields
	}
	if ended {
		w.Header().Set("Connection", "close")
	}
	switch {
	case tooMany:
		return http.StatusRequestHeaderFieldsTooLarge, runtime.Errorf(runtime.CodeLimitExceeded, "a request has at most %d header fields", maxFields)
	case ended:
		return http.StatusBadRequest, runtime.Errorf(runtime.CodeInvalidInput,
			"a request has either Content-Length, which is one number, or Transfer-Encoding, which needs HTTP/1.1")
	}
	return 0, nil
}

// off ends the checks, because the connection no longer speaks HTTP.
func (f *framingReader) off() { f.state = notHTTP }

// read reads from conn.
func (f *framingReader) read(conn net.Conn, p []byte) (int, error) {
	if f.over {
		n := copy(p, f.instead)
		if f.instead = f.instead[n:]; n == 0 && len(p) > 0 {
			return 0, io.EOF
		}
		return n, nil
	}
	n, err := conn.Read(p)
	if n > 0 && f.state != notHTTP {
		if taken := f.scan(p[:n]); taken < n || f.over {
			f.over, f.line = true, nil
			return taken, nil
		}
	}
	return n, err
}

// scan processes what was read, and returns how many of the bytes net/http may get. If that isn't
// all, the connection ends after them.
func (f *framingReader) scan(p []byte) int {
	for at := 0; at < len(p); {
		switch f.state {
		case beforeRequest:
			if p[at] == '\r' || p[at] == '\n' {
				at++
				continue
			}
			// A request begins: forget the head of the previous one.
			f.state, f.coded, f.sized, f.left, f.fields = inRequest, false, false, 0, 0
		// These bytes aren't lines.
		case inBody, inChunk:
			n := min(f.left, int64(len(p)-at))
			at += int(n)
			f.left -= n
			switch {
			case f.left > 0:
			case f.state == inBody:
				f.state = beforeRequest
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

// longLine is the number of first and of last bytes that are kept of a line that arrives in several
// reads and is longer than both. The first bytes contain a field's name or a chunk's size, the last
// ones the version.
const longLine = 128

// keep adds a part to the unfinished line. Of a long line it keeps only the start and the end.
func (f *framingReader) keep(part []byte) {
	f.line = append(f.line, part...)
	if len(f.line) > 2*longLine {
		f.line = append(f.line[:longLine], f.line[len(f.line)-longLine:]...)
		f.cut = true
	}
}

// end processes a line without its '\n'. It reports whether the connection continues.
func (f *framingReader) end(line []byte) bool {
	line, crlf := bytes.CutSuffix(line, []byte("\r"))
	switch f.state {
	case inRequest:
		// Only HTTP/1.1 has Transfer-Encoding; see field.
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
			f.state = beforeRequest
		}
	case inSize:
		// RFC 9112, 7.1.1: a size may have extensions after a semicolon.
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
			f.state = beforeRequest
		}
	}
	return true
}

// field processes a line of the head. A line that continues the one before (obs-fold) is also
// checked as a field, since a proxy may read it so. A long line is refused if its middle could
// contain a length of the body.
func (f *framingReader) field(line []byte) bool {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if f.fields++; f.fields > maxFields {
		return f.refuse(Fields)
	}
	folded := line[0] == ' ' || line[0] == '\t'
	name = bytes.TrimSpace(name)
	switch long := f.cut || len(line) > 2*longLine; {
	case long && (folded || bytes.EqualFold(name, []byte("Transfer-Encoding")) || bytes.EqualFold(name, []byte("Content-Length"))):
		return f.refuse(Framing)
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		f.coded = true
	case bytes.EqualFold(name, []byte("Content-Length")):
		f.sized = true
		n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 63)
		if f.left = int64(n); err != nil {
			return f.refuse(Framing)
		}
	}
	if f.coded && (f.sized || !f.modern) {
		return f.refuse(Framing)
	}
	return true
}

// refuse ends the connection at this request, and gives net/http the end of its head.
func (f *framingReader) refuse(why Bound) bool {
	f.refused(why)
	f.instead = fmt.Appendf(nil, framingEnding, why)
	return false
}
