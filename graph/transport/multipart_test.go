package transport

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

const (
	formStart = "--cut\r\nContent-Disposition: form-data; name=\"operations\"\r\n\r\n" + `{"query":"mutation m { x }","variables":{"file":null}}` +
		"\r\n--cut\r\nContent-Disposition: form-data; name=\"map\"\r\n\r\n" + `{"0":["variables.file"]}` +
		"\r\n--cut\r\nContent-Disposition: form-data; name=\"0\"; filename=\"f\"\r\n\r\n"
	formEnd = "\r\n--cut--\r\n"
)

// A sender sends a multipart request in pieces.
type sender struct {
	net.Conn
	answers *bufio.Reader
}

// sender sends the request's head, and the first pieces with it.
func (b *bed) sender(t *testing.T, size int, header string, first ...string) *sender {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &sender{conn, bufio.NewReader(conn)}
	s.send(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=cut\r\nContent-Length: %d\r\n%s\r\n", size, header)+strings.Join(first, ""))
	return s
}

const preflight = "GraphQL-Require-Preflight: 1\r\n"

func (s *sender) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(s, text); err != nil {
		t.Fatal(err)
	}
}

// want checks the response, and whether the connection ends with it.
func (s *sender) want(t *testing.T, status int, text string, ends bool) {
	t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(wait.Limit))
	response, err := http.ReadResponse(s.answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != status || !strings.Contains(string(body), text) {
		t.Errorf("%d %s, %v; want %d %s", response.StatusCode, body, err, status, text)
	}
	if response.Close != ends {
		t.Errorf("the connection is said to end: got %v, want %v", response.Close, ends)
	}
	if !ends {
		return
	}
	if _, err := s.answers.ReadByte(); err == nil {
		t.Error("more came")
	} else if late, ok := err.(net.Error); ok && late.Timeout() { //nolint:errorlint // the connection's own error
		t.Error("the connection stays open")
	}
}

func TestUploadsArriveInAnyPieces(t *testing.T) {
	b := newBed(t, Settings{Silence: wait.Limit})
	content := strings.Repeat("\r\n--cu\x00", 10)
	size := len(formStart) + len(content) + len(formEnd)
	for _, step := range []int{1, 7, size} {
		s := b.sender(t, size, preflight)
		all := formStart + content + formEnd
		for len(all) > 0 {
			n := min(step, len(all))
			s.send(t, all[:n])
			all = all[n:]
		}
		s.want(t, 200, fmt.Sprintf(`{"size":%d}`, len(content)), false)
		s.send(t, "GET /?query={x} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		s.want(t, 200, "data", true)
	}
}

func TestStalledUploadsAreAborted(t *testing.T) {
	b := newBed(t, Settings{Silence: time.Second})
	for name, sent := range map[string]string{
		"nothing": "", "operations": formStart[:20], "map": formStart[:140], "file": formStart + "some", "end": formStart + "some" + formEnd[:5],
	} {
		t.Run(name, func(t *testing.T) {
			status := 400
			if strings.HasPrefix(sent, formStart) {
				status = 200 // the mutation had begun
			}
			s := b.sender(t, 100_000, preflight, sent) // in one piece: what has arrived is no silence
			s.want(t, status, "the request stalled: no data of it arrived for 1s", true)
		})
	}
}

func TestIncompleteUploadsFail(t *testing.T) {
	b := newBed(t, Settings{})
	for _, sent := range []string{formStart[:20], formStart[:140], formStart + "some", formStart + "some" + formEnd[:5]} {
		s := b.sender(t, len(sent), preflight) // the body ends, the form doesn't
		s.send(t, sent)
		s.want(t, map[bool]int{true: 200, false: 400}[strings.HasPrefix(sent, formStart)], `"errors"`, false)
		s = b.sender(t, 100_000, preflight)
		s.send(t, sent)
		s.Close()
	}
}

// A client that is sending reads no response. So the server reads the rest first, unless it is too
// long.
func TestRefusedUploadsGetTheirResponse(t *testing.T) {
	b := newBed(t, Settings{Silence: time.Minute})
	body := formStart + strings.Repeat("x", 5<<20) + formEnd
	s := b.sender(t, len(body), "") // without the header
	s.send(t, body)
	s.want(t, 403, "GraphQL-Require-Preflight", false)
	s = b.sender(t, len(body), preflight)
	s.send(t, strings.Replace(body, "mutation m { x }", "mutation panics ", 1))
	s.want(t, 200, "errors", false)
	b = newBed(t, Settings{Silence: time.Second})
	s = b.sender(t, len(body), "", body[:1<<20]) // and no more
	s.want(t, 403, "GraphQL-Require-Preflight", true)
	s = b.sender(t, len(body), "Expect: 100-continue\r\n")
	s.want(t, 403, "GraphQL-Require-Preflight", true)

	s = b.sender(t, 1<<40, "") // its connection ends, however much arrives
	piece := strings.Repeat("x", 1<<20)
	for err := error(nil); err == nil; {
		_, err = io.WriteString(s, piece)
	}
}

// FuzzForm reads the parts before the files. Only a null of the variables may become a file.
func FuzzForm(f *testing.F) {
	f.Add(formStart+"x"+formEnd, "a.b")
	f.Add(formStart, "variables.file")
	f.Add(strings.Replace(formStart, `"file":null`, `"file":[null,{"a":null}]`, 1), "variables.file.1.a")
	f.Add("--cut\r\n\r\n--cut--", "variables.")
	f.Fuzz(func(t *testing.T, body, path string) {
		if text, err := json.Marshal(map[string][]string{"0": {path}}); err == nil {
			body = strings.Replace(body, `{"0":["variables.file"]}`, string(text), 1)
		}
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=cut")
		r.Header.Set("Apollo-Require-Preflight", "1")
		transport := Settings{MaxBody: 1 << 20}.WithDefaults()
		w := httptest.NewRecorder()
		params, status, err := transport.readMultipart(w, r, clients.NewBody(w, r, time.Minute), &reservation{})
		if err != nil {
			if code := runtime.CodeOf(err); status < 400 || code != runtime.CodeInvalidInput && code != runtime.CodeLimitExceeded {
				t.Fatalf("%d %v", status, err)
			}
			return
		}
		if params == nil || !utf8.ValidString(params.Query) {
			t.Fatalf("%+v", params)
		}
	})
}
