package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/tlstest"
	"github.com/rockpool/rockpool/test/wait"
)

// A tlsServer server uses TLS, requires a token, and logs requests.
type tlsServer struct {
	bed.Bed
	authority         *tlstest.Authority
	dir               string // has its certificate and key
	token, tokenFile  string
	accessLog, runner string
	stop              func()
}

func serveSecured(t *testing.T) *tlsServer {
	t.Helper()
	data := bed.DataDir(t)
	s := &tlsServer{authority: tlstest.New(t), dir: t.TempDir(), token: "correct-horse-battery"}
	s.tokenFile, s.accessLog = filepath.Join(s.dir, "token"), filepath.Join(s.dir, "access.log")
	if err := os.WriteFile(s.tokenFile, []byte(s.token), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := bed.Settings(data, bed.Cgroups)
	settings.TokenFile, settings.AccessLog = s.tokenFile, s.accessLog
	settings.TLS.Cert, settings.TLS.Key = s.authority.Write(t, s.dir, "first")
	s.Bed, s.stop = bed.ServeHere(t, settings)
	s.Call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, object{"in": object{"id": "tls", "poolSize": 1}}, nil)
	s.runner = s.ClaimUnreleased(t, "tls")
	return s
}

// speak returns a client that uses only HTTP/1.1 or HTTP/2.
func (s *tlsServer) speak(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.authority.Pool}, ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: wait.Limit}
}

// do sends a request and returns the whole answer.
func (s *tlsServer) do(t *testing.T, c *http.Client, method, path, kind string, body io.Reader, header ...string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.Address+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return response, text
}

// TestE2ETLS sends every kind of request over TLS, by HTTP/1.1 and by HTTP/2.
func TestE2ETLS(t *testing.T) {
	s := serveSecured(t)
	if !strings.HasPrefix(s.Address, "https://") {
		t.Fatal(s.Address)
	}
	for http2, proto := range map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) { s.useBy(t, s.speak(t, http2), proto) })
	}
	s.useByWebSocket(t)
	s.useByCommands(t)
	s.renew(t)
	s.stop()
	s.readAccessLog(t)
}

func (s *tlsServer) useBy(t *testing.T, c *http.Client, proto string) {
	bearer := []string{"Authorization", "Bearer " + s.token, "GraphQL-Require-Preflight", "1"}
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB, more than the windows of HTTP/2
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	_ = parts.WriteField("operations", fmt.Sprintf(`{"query": %q, "variables": {"runner": %q, "path": "up", "file": null}}`, bed.UploadMutation, s.runner))
	_ = parts.WriteField("map", `{"0": ["variables.file"]}`)
	file, _ := parts.CreateFormFile("0", "file")
	_, _ = file.Write(content)
	_ = parts.Close()
	response, text := s.do(t, c, http.MethodPost, "/graphql", parts.FormDataContentType(), &form, bearer...)
	var out struct {
		Data struct {
			UploadFile struct {
				File struct {
					Size        int
					DownloadURL string
				}
			}
		}
	}
	if err := json.Unmarshal(text, &out); err != nil || response.Proto != proto || out.Data.UploadFile.File.Size != len(content) {
		t.Fatalf("upload: %s %s %s", response.Proto, response.Status, text)
	}
	address := out.Data.UploadFile.File.DownloadURL
	if _, text := s.do(t, c, http.MethodGet, address, "", nil); !bytes.Equal(text, content) {
		t.Errorf("download: %d bytes", len(text))
	}
	if response, text := s.do(t, c, http.MethodGet, address, "", nil, "Range", "bytes=5-9"); response.StatusCode != http.StatusPartialContent || string(text) != "56789" {
		t.Errorf("a range: %s %q", response.Status, text)
	}
	execution, err := client.Start(t.Context(), s, client.StartExecutionInput{RunnerId: s.runner, Command: []string{"sh", "-c", "for i in 1 2 3; do echo line $i; sleep 0.2; done"}})
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"query": "subscription { executionEvents(executionId: \"%s\") { __typename ... on ExecutionOutput { text } } }"}`, execution)
	_, text = s.do(t, c, http.MethodPost, "/graphql", "application/json", strings.NewReader(body), append(bearer, "Accept", "text/event-stream")...)
	if !strings.Contains(string(text), "line 3") || !strings.HasSuffix(string(text), "event: complete\ndata: \n\n") {
		t.Errorf("events: %s", text)
	}
	if response, text := s.do(t, c, http.MethodPost, "/graphql", "application/json", strings.NewReader(`{"query": "{version}"}`)); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s %s", response.Status, text)
	}
	for path, status := range map[string]int{"/": 200, "/graphql": 401, "/metrics": 401, "/health/ready": 200, "/runners": 0, "/graphiql": 0, "/theme.js": 0, "/nonesuch": 404, "/files/x": 403, address: 200} {
		response, _ := s.do(t, c, http.MethodGet, path, "", nil)
		h := response.Header
		if status != 0 && response.StatusCode != status { // 0 means the server may be built without its dashboard
			t.Errorf("%s: %s", path, response.Status)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") || h.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s: %v", path, h) // HSTS would apply to everything on this machine
		}
	}
	if response, _ := s.do(t, c, http.MethodGet, "/nonesuch", "", nil, "X-Forwarded-For", "192.0.2.1"); response.StatusCode != http.StatusNotFound {
		t.Error(response.Status)
	}
}

func (s *tlsServer) useByWebSocket(t *testing.T) {
	execution, err := client.Start(t.Context(), s, client.StartExecutionInput{RunnerId: s.runner, Command: []string{"sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	printed := 0
	// The client sends its token in a header.
	err = s.Subscribe(ctx, client.Request{Query: `subscription($id: ID!) { executionEvents(executionId: $id) { ... on ExecutionOutput { text } } }`, Variables: object{"id": execution}},
		func(data json.RawMessage) error {
			var event struct{ ExecutionEvents struct{ Text string } }
			err := json.Unmarshal(data, &event)
			printed += len(event.ExecutionEvents.Text)
			return err
		})
	if err != nil || printed != 3_000_000 {
		t.Errorf("%d bytes by WebSocket, %v", printed, err)
	}
}

func (s *tlsServer) useByCommands(t *testing.T) {
	var out, errs bytes.Buffer
	arguments := []string{"runner", "list", "--server", s.Address, "--token-file", s.tokenFile}
	if code := bed.RunCLI(arguments, nil, &out, &errs); code == 0 || !strings.Contains(errs.String(), "--ca-file") {
		t.Errorf("without --ca-file: %d %s", code, errs.String())
	}
	if code := bed.RunCLI(append(arguments, "--ca-file", s.authority.File), nil, &out, &errs); code != 0 || !strings.Contains(out.String(), s.runner) {
		t.Errorf("%d %s %s", code, out.String(), errs.String())
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		return // curl isn't installed everywhere
	}
	for flag, version := range map[string]string{"--http1.1": "1.1", "--http2": "2"} {
		got, stderr, code := bed.RunProgram(t, nil, curl, "-sS", flag, "--cacert", s.authority.File, "-H", "Authorization: Bearer "+s.token, "-H", "Content-Type: application/json",
			"-d", `{"query": "{ version }"}`, "-w", " by %{http_version}", s.Address+"/graphql")
		if code != 0 || !strings.Contains(got, `"version"`) || !strings.HasSuffix(got, " by "+version) {
			t.Errorf("curl %s: %d %s %s", flag, code, got, stderr)
		}
	}
}

// renew replaces the certificate while the server runs.
func (s *tlsServer) renew(t *testing.T) {
	s.authority.Write(t, s.dir, "second")
	wait.For(t, "the new certificate is used", func() bool {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.Address, "https://"), &tls.Config{RootCAs: s.authority.Pool})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName == "second"
	})
	s.CloseIdle()
	s.Call(t, "{ version }", nil, nil)
}

func (s *tlsServer) readAccessLog(t *testing.T) {
	text, err := os.ReadFile(s.accessLog)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{s.token, "signature", "?"} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("%q is in the access log", secret)
		}
	}
	var kinds []string
	for text := range bytes.Lines(text) {
		var line struct {
			Time                           time.Time
			Client, Method, Path, Protocol string
			Status                         int
			Bytes                          int64
			Operations                     []struct{ Type string }
		}
		if err := json.Unmarshal(text, &line); err != nil || line.Client != "127.0.0.1" || line.Time.IsZero() {
			t.Errorf("%s: %v", text, err)
		}
		path, _, _ := strings.Cut(strings.TrimPrefix(line.Path, "/"), "/")
		kinds = append(kinds, fmt.Sprintf("%s %s %s %d", line.Protocol, line.Method, path, line.Status))
		for _, op := range line.Operations {
			kinds = append(kinds, fmt.Sprintf("%s %s %d", line.Method, op.Type, line.Status))
		}
	}
	for _, want := range []string{"HTTP/1.1 GET graphql 101", "HTTP/1.1 POST graphql 200", "HTTP/2.0 POST graphql 200", "HTTP/2.0 GET files 206", "HTTP/2.0 GET health 200", "HTTP/2.0 GET graphql 401", "POST mutation 200", "GET subscription 101"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("no line is %s: %q", want, kinds)
		}
	}
}

// TestE2ETLSServerStopsInTime: a server with HTTP/2 clients that follow events stops within its
// time.
func TestE2ETLSServerStopsInTime(t *testing.T) {
	s := serveSecured(t)
	c := s.speak(t, true)
	r, err := http.NewRequest(http.MethodPost, s.Address+"/graphql", strings.NewReader(`{"query": "subscription { poolAlerts { since } }"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + s.token}, "Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.ProtoMajor != 2 || response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", response.Proto, response.Status)
	}
	began := time.Now()
	s.stop()
	if _, err := io.Copy(io.Discard, response.Body); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	t.Logf("it ended after %s", time.Since(began).Round(time.Millisecond))
}
