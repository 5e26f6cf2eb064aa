package clients

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// A refusedRequests counts refused requests.
type refusedRequests struct{ lengths, fields atomic.Int64 }

func (r *refusedRequests) count(why Bound) {
	if why == Fields {
		r.fields.Add(1)
	} else {
		r.lengths.Add(1)
	}
}

// A framingListener gives its connections to framingReaders.
type framingListener struct {
	net.Listener
	refused *refusedRequests
}

func (l framingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &framedConn{Conn: c, reader: framingReader{refused: l.refused.count}}, err
}

type framedConn struct {
	net.Conn
	reader framingReader
}

func (c *framedConn) Read(p []byte) (int, error) { return c.reader.read(c.Conn, p) }

func (c *framedConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// framed serves through framingReaders. It responds to each request with its path and the length of its
// body.
func framed(t testing.TB) (address string, refused *refusedRequests) {
	t.Helper()
	refused = &refusedRequests{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, err := CheckFraming(w, r); err != nil {
			w.WriteHeader(status)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, "%s %d %v", r.URL.Path, n, err)
	}))
	server.Listener = framingListener{server.Listener, refused}
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), refused
}

// exchange sends text in pieces of this size; 0 means in one piece. It returns the responses until the server
// ends the connection, or until there are enough.
func exchange(t *testing.T, address, text string, piece, answers int) (got []string, ended bool) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if piece == 0 {
		piece = len(text)
	}
	for at := 0; at < len(text); at += piece {
		if _, err := io.WriteString(conn, text[at:min(at+piece, len(text))]); err != nil {
			break // the server has ended it
		}
	}
	in := bufio.NewReader(conn)
	for range answers {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			return got, true
		}
		body, err := io.ReadAll(response.Body)
		// net/http's own responses have no length. They end with the connection, which is reset
		// if more was sent.
		if err != nil && (response.ContentLength >= 0 || !errors.Is(err, syscall.ECONNRESET)) {
			t.Fatal(err)
		}
		got = append(got, strings.TrimSpace(fmt.Sprint(response.StatusCode, " ", string(body))))
		if response.Close {
			_, err := in.ReadByte()
			return got, err != nil
		}
	}
	return got, false
}

const (
	post    = "POST /%s HTTP/1.1\r\nHost: x\r\n"
	sized   = "Content-Length: 5\r\n\r\nabcde"
	chunked = "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
)

// hidden is 85 bytes that are the body of one request, or the beginning of another.
const hidden = "POST /hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000000\r\nX-Filler: yyyyyyyyyyy\r\n\r\n"

func at(path string) string { return fmt.Sprintf(post, path) }

// Requests with two lengths are sent over a real connection, in one piece and byte by byte. The
// response is 400, and nothing after them is answered.
func TestRequestsWithTwoLengthsAreRefused(t *testing.T) {
	address, counted := framed(t)
	after := at("smuggled") + sized
	refused := int64(0)
	for name, test := range map[string]struct {
		text string
		want []string // "" means the connection ends
	}{
		"length first":            {at("a") + "Content-Length: 5\r\n" + chunked + after, []string{"400"}},
		"encoding first":          {at("a") + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + after, []string{"400"}},
		"other fields between":    {at("a") + "Content-Length: 5\r\nX: y\r\n" + chunked + after, []string{"400"}},
		"odd case":                {at("a") + "cOnTENT-lENGTH: 5\r\ntRANSFER-eNCODING: cHUNKED\r\n\r\n0\r\n\r\n" + after, []string{"400"}},
		"no space":                {at("a") + "Content-Length:5\r\nTransfer-Encoding:chunked\r\n\r\n0\r\n\r\n" + after, []string{"400"}},
		"bare line ends":          {"POST /a HTTP/1.1\nHost: x\nContent-Length: 5\nTransfer-Encoding: chunked\n\n0\r\n\r\n" + after, []string{"400"}},
		"a folded field":          {at("a") + "X: y\r\n Content-Length: 5\r\n" + chunked + after, []string{"400"}},
		"a folded encoding":       {at("a") + "Content-Length: 5\r\nX: y\r\n\tTransfer-Encoding: chunked\r\n\r\nabcde" + after, []string{"400"}},
		"a folded value":          {at("a") + "Content-Length: 5\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + after, []string{"501 Unsupported transfer encoding"}}, // net/http has seen no value
		"a length of 0":           {at("a") + "Content-Length: 0\r\n" + chunked + after, []string{"400"}},
		"HTTP/1.0":                {"POST /a HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n" + chunked + after, []string{"400"}},
		"pipelined":               {at("a") + sized + at("b") + chunked + at("c") + "Content-Length: 5\r\n" + chunked + after, []string{"200 /a 5 <nil>", "200 /b 5 <nil>", "400"}},
		"pipelined, GET":          {"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n" + chunked + after, []string{"200 /a 0 <nil>", "400"}},
		"after line ends":         {at("a") + sized + "\r\n" + at("b") + "Content-Length: 5\r\n" + chunked + after, []string{"200 /a 5 <nil>", "400"}},
		"after a trailer":         {at("a") + strings.TrimSuffix(chunked, "\r\n") + "T: u\r\n\r\n" + at("b") + "Content-Length: 5\r\n" + chunked + after, []string{"200 /a 5 <nil>", "400"}},
		"long fields":             {at("a") + "X: " + strings.Repeat("y", 9000) + "\r\nContent-Length: 5\r\nY: " + strings.Repeat("z", 9000) + "\r\n" + chunked + after, []string{"400"}},
		"in the body":             {at("a") + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(after+chunked)) + after + chunked, []string{fmt.Sprintf("200 /a %d <nil>", len(after+chunked))}},
		"in a chunk":              {at("a") + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", len(after+chunked)) + after + chunked + "\r\n0\r\n\r\n", []string{fmt.Sprintf("200 /a %d <nil>", len(after+chunked))}},
		"one in each of two":      {at("a") + sized + at("b") + chunked, []string{"200 /a 5 <nil>", "200 /b 5 <nil>"}},
		"a long length":           {at("a") + "Content-Length:" + strings.Repeat("0", 120) + "85" + strings.Repeat(" ", 150) + "\r\n\r\n" + hidden + after, []string{"400"}},
		"a long encoding":         {at("a") + "Content-Length: 5\r\nTransfer-Encoding:" + strings.Repeat(" ", 300) + chunked[len("Transfer-Encoding:"):] + after, []string{"400"}},
		"a long folded field":     {at("a") + "X: y\r\n" + strings.Repeat(" ", 200) + "Content-Length: 5;" + strings.Repeat(" ", 200) + "\r\n" + chunked + after, []string{"400"}},
		"names that only contain": {at("a") + "X-Content-Length: 5\r\n" + chunked, []string{"200 /a 5 <nil>"}},
	} {
		for _, piece := range []int{0, 1, 7} {
			got, ended := exchange(t, address, test.text, piece, len(test.want))
			if strings.Join(got, ", ") != strings.Join(test.want, ", ") {
				t.Errorf("%s, pieces of %d: %q, not %q", name, piece, got, test.want)
			}
			if !strings.HasPrefix(test.want[len(test.want)-1], "200") {
				if refused++; !ended {
					t.Errorf("%s, pieces of %d: the connection goes on", name, piece)
				}
			}
		}
	}
	if got := counted.lengths.Load(); got != refused {
		t.Errorf("%d refusals are counted, not %d", got, refused)
	}
}

// Heads with many fields are refused, because each field of a few bytes takes hundreds of bytes in
// net/http's map.
func TestHeadsWithManyFieldsAreRefused(t *testing.T) {
	address, counted := framed(t)
	fields := func(n int) string {
		text := "Host: x\r\n"
		for i := range n - 1 {
			text += fmt.Sprintf("a%d:\r\n", i)
		}
		return text
	}
	text := "GET /a HTTP/1.1\r\n" + fields(maxFields) + "\r\n" + "GET /b HTTP/1.1\r\n" + fields(maxFields+1) + "\r\n"
	got, ended := exchange(t, address, text, 0, 2)
	if want := []string{"200 /a 0 <nil>", "431"}; !slices.Equal(got, want) || !ended {
		t.Errorf("%q, not %q; the connection has ended: %v", got, want, ended)
	}
	if got := counted.fields.Load(); got != 1 {
		t.Errorf("%d refusals are counted, want 1", got)
	}
}

// FuzzFramingFollowsNetHTTP checks two things, however the bytes are split. net/http accepts no
// request with both fields after framing. Framing finds the end of each request where net/http
// does.
func FuzzFramingFollowsNetHTTP(f *testing.F) {
	for _, text := range []string{
		at("a") + sized + at("b") + chunked + "GET / HTTP/1.1\r\nHost: x\r\n\r\n", at("a") + "Content-Length: 5\r\n" + chunked,
		"\r\n\n" + at("a") + chunked, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
		at("a") + "Transfer-Encoding: chunked\r\n\r\n0\n\nGET / HTTP/1.1\r\n\r\n", at("a") + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\nGET / HTTP/1.1\r\n\r\n\r\n",
		at("a") + "Content-Length: 0005\r\n\r\nabcde" + at("b") + "Content-Length: +5\r\n\r\nabcde", at("a") + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na" + at("b") + "\r\n",
		at("a") + "X: y\r\n \r\n\r\nGET / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
		at("a") + "Content-Length:" + strings.Repeat("0", 120) + "85" + strings.Repeat(" ", 150) + "\r\n\r\n" + hidden + at("b") + sized,
		at("a") + "Transfer-Encoding: chunked\r\n\r\n5;" + strings.Repeat("x", 300) + "\r\nabcde\r\n0\r\n\r\n" + at("b") + sized,
		at("a") + "Transfer-Encoding: chunked\r\n\r\n5" + strings.Repeat(" ", 150) + "7" + strings.Repeat(" ", 150) + "\r\nabcde\r\n0\r\n\r\n" + at("b") + sized,
	} {
		for seed := range uint64(4) {
			f.Add([]byte(text), seed)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		follow := &framingReader{refused: func(Bound) {}}
		given := follow.split(text, seed)
		from := bytes.NewReader(text[:given])
		in := bufio.NewReader(from)
		position := func() int { return given - from.Len() - in.Buffered() }
		for {
			for c, err := in.Peek(1); err == nil && (c[0] == '\r' || c[0] == '\n'); c, err = in.Peek(1) {
				_, _ = in.Discard(1) // as net/http does after a POST
			}
			begun := position()
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			names := map[string]bool{}
			for line := range bytes.Lines(text[begun:position()]) {
				name, _, _ := bytes.Cut(line, []byte(":"))
				names[strings.ToLower(string(bytes.TrimSpace(name)))] = true
			}
			if names["content-length"] && names["transfer-encoding"] {
				t.Fatalf("net/http takes %q", text[begun:position()])
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			to := &framingReader{refused: func(Bound) {}}
			if taken := to.split(text[:position()], seed); !to.over && to.state != beforeRequest {
				t.Fatalf("net/http sees the end of a request after %q, framing is in state %d after %d bytes", text[begun:position()], to.state, taken)
			}
		}
	})
}

// split scans text in pieces of random sizes. It returns how many bytes net/http may get.
func (f *framingReader) split(text []byte, seed uint64) (given int) {
	sizes := rand.New(rand.NewPCG(seed, 0))
	for at := 0; at < len(text) && !f.over; {
		size := min(1+sizes.IntN(300), len(text)-at)
		given += f.scan(text[at : at+size])
		at += size
	}
	return given
}

// BenchmarkFraming measures a framingReader with a request of 1 KiB.
func BenchmarkFraming(b *testing.B) {
	text := []byte(fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", 1<<10, strings.Repeat("x", 1<<10)))
	f := &framingReader{refused: func(Bound) {}}
	b.ReportAllocs()
	for b.Loop() {
		if f.scan(text) != len(text) {
			b.Fatal("it was refused")
		}
	}
}
