package api

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime/paths"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2ERangesOfFiles downloads parts of a file that no longer changes.
func TestE2ERangesOfFiles(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	const size = 300_000
	whole := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(whole)
	b.UploadFile(t, runner, "data.bin", size, bytes.NewReader(whole))
	b.Shell(t, runner, "cp data.bin fresh; touch -d '1 hour' fresh") // too new at any time of the request
	response, _, _ := b.Get(t, "HEAD", *locate(t, b, runner, "fresh"))
	if tag := response.Header.Get("ETag"); !strings.HasPrefix(tag, "W/") {
		t.Errorf("the tag of a file that was just written is %q: a change within the clock's step keeps it", tag)
	}
	b.Shell(t, runner, "cp data.bin mine; touch -d '2001-02-03 04:05:06.789' mine")
	address := *locate(t, b, runner, "mine")
	response, _, _ = b.Get(t, "HEAD", address)
	tag := response.Header.Get("ETag")
	if tag == "" || strings.HasPrefix(tag, "W/") || response.Header.Get("Last-Modified") != "Sat, 03 Feb 2001 04:05:06 GMT" {
		t.Fatalf("%v", response.Header)
	}
	for name, test := range map[string]struct {
		header   []string
		status   int
		from, to int
	}{
		"whole":              {nil, 200, 0, size},
		"first":              {[]string{"Range", "bytes=0-0"}, 206, 0, 1},
		"middle":             {[]string{"Range", "bytes=100000-200000"}, 206, 100_000, 200_001},
		"open":               {[]string{"Range", "bytes=299990-"}, 206, 299_990, size},
		"suffix":             {[]string{"Range", "bytes=-10"}, 206, 299_990, size},
		"long suffix":        {[]string{"Range", "bytes=-999999"}, 206, 0, size},
		"end beyond":         {[]string{"Range", "bytes=299999-400000"}, 206, 299_999, size},
		"same version":       {[]string{"Range", "bytes=5-9", "If-Range", tag}, 206, 5, 10},
		"another version":    {[]string{"Range", "bytes=5-9", "If-Range", `"other"`}, 200, 0, size},
		"weak tag":           {[]string{"Range", "bytes=5-9", "If-Range", "W/" + tag}, 200, 0, size},
		"time as condition":  {[]string{"Range", "bytes=5-9", "If-Range", "Sat, 03 Feb 2001 04:05:06 GMT"}, 200, 0, size},
		"several":            {[]string{"Range", "bytes=0-1,5-9"}, 200, 0, size},
		"another unit":       {[]string{"Range", "lines=0-1"}, 416, 0, 0},
		"begin beyond":       {[]string{"Range", "bytes=300000-"}, 416, 0, 0},
		"backwards":          {[]string{"Range", "bytes=9-5"}, 416, 0, 0},
		"unchanged":          {[]string{"If-None-Match", tag}, 304, 0, 0},
		"range of unchanged": {[]string{"If-None-Match", `"other"`, "Range", "bytes=7-8"}, 206, 7, 9},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			response, body, err := b.Get(t, method, address, test.header...)
			if err != nil || response.StatusCode != test.status {
				t.Errorf("%s, %s: %s, %v", method, name, response.Status, err)
				continue
			}
			if test.status == 416 {
				if response.Header.Get("Content-Range") != "bytes */300000" || method == "GET" && !strings.Contains(string(body), `"field":"Range"`) {
					t.Errorf("%s: %v %s", name, response.Header, body)
				}
				continue
			}
			if test.status == 206 && response.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", test.from, test.to-1, size) {
				t.Errorf("%s: Content-Range %s", name, response.Header.Get("Content-Range"))
			}
			want := whole[test.from:test.to]
			if method == "HEAD" {
				want = nil
			}
			if test.status != 304 && response.ContentLength != int64(test.to-test.from) || !bytes.Equal(body, want) {
				t.Errorf("%s, %s: %d bytes, %d promised", method, name, len(body), response.ContentLength)
			}
		}
	}
}

// TestE2ENamesOfDownloads: every name that a file can have is listed, can be downloaded, and is
// sent to a browser.
func TestE2ENamesOfDownloads(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	names := []string{"plain.txt", `it's "q".txt`, "new\nline", "a;b=c, d", "50%41", "ünï🐟", "日本", "-rf", " ", "back\\slash", "tab\t", "?x=1&y#z", "\xff\xfe", "half\xc3"}
	script := "import os\nfor name in " + pythonBytes(names) + ":\n    open(b'odd/' + name, 'wb').write(b'in ' + name)\n"
	if got := b.Run(t, object{"runnerId": runner, "command": []string{"sh", "-c", "mkdir odd; python3 -c \"$0\"", script}}); *got.ExitCode != 0 {
		t.Fatalf("%s", got.Stream("STDERR"))
	}
	for _, query := range []string{`files(path: "odd")`, `files(path: "/workspace/odd/")`, `files(path: "/workspace", recursive: true)`} {
		var out struct {
			Runner struct {
				Files struct {
					Nodes []struct{ Path, DownloadURL string }
				}
			}
		}
		b.Call(t, `query($id: ID!) { runner(id: $id) { `+query+` { nodes { path downloadUrl } } } }`, object{"id": runner}, &out)
		found := 0
		for _, node := range out.Runner.Files.Nodes {
			if node.DownloadURL == "" {
				continue // the directory
			}
			response, body, err := b.Get(t, "GET", node.DownloadURL)
			name, ok := strings.CutPrefix(string(body), "in ")
			if err != nil || response.StatusCode != 200 || !ok || !slices.Contains(names, name) {
				t.Errorf("%s: %q: %s %q", query, node.Path, response.Status, body)
				continue
			}
			found++
			readable := paths.Text(name)
			if !strings.HasSuffix(node.Path, readable) {
				t.Errorf("%q is listed as %q", name, node.Path)
			}
			kind, params, err := mime.ParseMediaType(response.Header.Get("Content-Disposition"))
			if err != nil || kind != "attachment" || params["filename"] != readable {
				t.Errorf("%q is called %q: %q, %v", name, response.Header.Get("Content-Disposition"), params["filename"], err)
			}
			for header, want := range map[string]string{"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Cache-Control": "private, no-store",
				"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox", "Accept-Ranges": "bytes"} {
				if got := response.Header.Get(header); got != want {
					t.Errorf("%s is %q, want %q", header, got, want)
				}
			}
		}
		if found != len(names) {
			t.Errorf("%s: %d of %d files were found", query, found, len(names))
		}
	}
}

// pythonBytes writes names as a list in Python.
func pythonBytes(names []string) string {
	var list strings.Builder
	for _, name := range names {
		list.WriteString("b'")
		for _, c := range []byte(name) {
			fmt.Fprintf(&list, "\\x%02x", c)
		}
		list.WriteString("', ")
	}
	return "[" + list.String() + "]"
}

// TestE2EThousandsOfFilesArePaged: pages hold each of more than 5,000 names once, even names that
// look the same when shown.
func TestE2EThousandsOfFilesArePaged(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	const files = 5000
	script := `
import os
os.mkdir('many')
for i in range(5000):
    odd = [b'\n', b'"', b"'", b'\xff', b'\xfe', b'\\', '日'.encode(), b' ', b'$(x)', b'\t'][i % 10]
    with open(b'many/' + odd + b'%d' % (i // 10), 'wb') as f: f.write(b'%d' % i)
`
	if got := b.Run(t, object{"runnerId": runner, "command": []string{"python3", "-c", script}, "timeLimit": 60}); *got.ExitCode != 0 {
		t.Fatalf("%s", got.Stream("STDERR"))
	}
	seen, pages := map[string]int{}, 0
	for after := (*string)(nil); ; pages++ {
		var out struct {
			Runner struct {
				Files struct {
					Nodes []struct {
						Path, DownloadURL string
						Size              int64
					}
					PageInfo struct {
						HasNextPage bool
						EndCursor   *string
					}
				}
			}
		}
		b.Call(t, `query($id: ID!, $after: String) { runner(id: $id) { files(path: "many", first: 777, after: $after) {
			nodes { path size downloadUrl } pageInfo { hasNextPage endCursor } } } }`, object{"id": runner, "after": after}, &out)
		for _, node := range out.Runner.Files.Nodes {
			address, _, _ := strings.Cut(node.DownloadURL, "&signature=")
			_, path, _ := strings.Cut(address, "path=")
			seen[path]++
			if strings.Contains(node.Path, "\n") && len(seen)%100 == 0 {
				if got := downloadFile(t, b, node.DownloadURL); int64(len(got)) != node.Size {
					t.Errorf("%q: %q", node.Path, got)
				}
			}
		}
		if !out.Runner.Files.PageInfo.HasNextPage {
			break
		}
		after = out.Runner.Files.PageInfo.EndCursor
	}
	if len(seen) != files || pages != files/777 {
		t.Errorf("%d files in %d pages", len(seen), pages+1)
	}
	for path, times := range seen {
		if times != 1 {
			t.Errorf("%s was listed %d times, want 1", path, times)
		}
	}
}

// TestE2EOutputsAreExact downloads a program's output and compares every byte: of one stream, of
// both in order, of ranges, and while the program runs.
func TestE2EOutputsAreExact(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	locate := func(id string) string {
		var out struct{ Execution struct{ OutputURL string } }
		b.Call(t, `query($id: ID!) { execution(id: $id) { outputUrl } }`, object{"id": id}, &out)
		return out.Execution.OutputURL
	}
	got := b.Run(t, object{"runnerId": runner, "command": []string{"python3", "-c", `
import os, time
for i in range(200):
    os.write(1, bytes(range(256)) * 10); os.write(2, b'\xff%d\n' % i); time.sleep(0.001)
`}, "timeLimit": 60})
	if !got.Output.End {
		t.Fatal("it printed more than one page")
	}
	var both []byte
	for _, chunk := range got.Output.Chunks {
		both = append(both, chunk.Base64...)
	}
	address := locate(got.Id)
	for query, want := range map[string][]byte{"": both, "&stream=stdout": []byte(got.Stream("STDOUT")), "&stream=STDERR": []byte(got.Stream("STDERR"))} {
		if len(want) < 800 {
			t.Fatalf("%q: only %d bytes were printed", query, len(want))
		}
		if all := downloadFile(t, b, address+query); !bytes.Equal(all, want) {
			t.Errorf("%q: %d bytes, want %d", query, len(all), len(want))
		}
		for _, part := range [][2]int{{0, 1}, {len(want) / 3, len(want)/3 + 500}, {len(want) - 100, len(want)}} {
			response, body, err := b.Get(t, "GET", address+query, "Range", fmt.Sprintf("bytes=%d-%d", part[0], part[1]-1))
			if err != nil || response.StatusCode != 206 || !bytes.Equal(body, want[part[0]:part[1]]) {
				t.Errorf("%q, %v: %s, %d bytes, %v", query, part, response.Status, len(body), err)
			}
		}
		response, _, _ := b.Get(t, "HEAD", address+query)
		if response.ContentLength != int64(len(want)) || response.Header.Get("Content-Type") != "text/plain; charset=utf-8" || response.Header.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.HasPrefix(response.Header.Get("Content-Disposition"), "inline; filename=\""+got.Id) || response.Header.Get("Rockpool-Lost-Bytes") != "" {
			t.Errorf("%q: %v", query, response.Header)
		}
	}
	if response, body, _ := b.Get(t, "GET", address+"&stream=all"); response.StatusCode != 400 || !strings.Contains(string(body), `"field":"stream"`) {
		t.Errorf("a stream that isn't one: %s %s", response.Status, body)
	}

	// While the program runs, a download has the output so far, and a later range continues.
	id := b.Start(t, object{"runnerId": runner, "shell": "echo one; read go; echo two", "stdin": true})
	address = locate(id)
	wait.For(t, "it has printed", func() bool { return string(downloadFile(t, b, address)) == "one\n" })
	if all, none := downloadFile(t, b, address+"&stream=stdout"), downloadFile(t, b, address+"&stream=stderr"); string(all) != "one\n" || len(none) > 0 {
		t.Errorf("of a program that runs: %q, %q", all, none)
	}
	b.Call(t, `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`, object{"in": object{"executionId": id, "text": "\n", "close": true}}, nil)
	b.Await(t, id)
	more, promised, err := b.Download(t.Context(), address, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer more.Close()
	if text, err := io.ReadAll(more); err != nil || string(text) != "two\n" || promised != 4 {
		t.Errorf("the rest: %q of %d, %v", text, promised, err)
	}
	if silent := b.Shell(t, runner, "true"); len(downloadFile(t, b, locate(silent.Id))) != 0 {
		t.Error("a silent program printed")
	}
}

// TestE2EAddressesAreSigned: the server refuses a changed URL before it reads anything.
func TestE2EAddressesAreSigned(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	address := b.UploadFile(t, runner, "mine", 4, strings.NewReader("text"))
	for _, forged := range []string{
		strings.Replace(address, "mine", "/etc/passwd", 1), strings.Replace(address, runner, "other", 1), strings.Replace(address, "expires=", "expires=9", 1),
		strings.Replace(address, "signature=", "signature=A", 1), strings.Split(address, "?")[0], strings.Replace(address, "/files/", "/outputs/", 1), strings.Split(address, "&signature")[0] + "&signature=",
	} {
		response, body, _ := b.Get(t, "GET", forged)
		if response.StatusCode != 403 || !strings.Contains(string(body), `"FORBIDDEN"`) || forged == address {
			t.Errorf("%s: %s %s", forged, response.Status, body)
		}
	}
	for _, header := range [][]string{{"Origin", "https://evil.example.org"}, {"Sec-Fetch-Site", "cross-site"}} {
		if response, _, _ := b.Get(t, "GET", address, header...); response.StatusCode != 403 {
			t.Errorf("%v: %s", header, response.Status)
		}
	}
	if response, _, _ := b.Get(t, "POST", address); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", response.Status)
	}
}
