// Package judge runs programs at a go-judge over its REST API, to compare it with a server. It
// deletes the files that it stored there.
package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
)

// A Judge is a go-judge at a URL. It is safe for concurrent use.
type Judge struct {
	url  string
	http *http.Client
}

// Open returns the go-judge at a URL, or an error if none answers.
func Open(ctx context.Context, address string) (*Judge, error) {
	parsed, err := url.Parse(address)
	if err == nil && (parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https") {
		err = errors.New("it must be http:// or https:// and a host")
	}
	if err != nil {
		return nil, fmt.Errorf("the URL %q of go-judge: %w", address, err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is net/http's own
	transport.MaxIdleConnsPerHost = 64                           // one for each concurrent request
	j := &Judge{url: strings.TrimSuffix(address, "/"), http: &http.Client{Transport: transport}}
	var version struct{ BuildVersion string }
	if err := j.request(ctx, http.MethodGet, "/version", "", nil, &version); err != nil {
		return nil, fmt.Errorf("no go-judge answers at %s: %w", address, err)
	}
	return j, nil
}

// URL returns its URL.
func (j *Judge) URL() string { return j.url }

// Put stores a file at the go-judge, and returns its id and a function that deletes it.
func (j *Judge) Put(ctx context.Context, name string, content []byte) (id string, remove func() error, err error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", name)
	if err == nil {
		_, err = part.Write(content)
	}
	if err = errors.Join(err, form.Close()); err != nil {
		return "", nil, err
	}
	if err := j.request(ctx, http.MethodPost, "/file", form.FormDataContentType(), &body, &id); err != nil {
		return "", nil, err
	}
	return id, func() error {
		return j.request(context.WithoutCancel(ctx), http.MethodDelete, "/file/"+id, "", nil, nil)
	}, nil
}

// A file is a file in go-judge's API: its content, an uploaded one, or an output with a maximum
// size.
type file struct {
	Content *string `json:"content,omitempty"`
	FileID  string  `json:"fileId,omitempty"`
	Name    string  `json:"name,omitempty"`
	Max     int     `json:"max,omitempty"`
}

// A command is one program in go-judge's API.
type command struct {
	Args        []string        `json:"args"`
	Env         []string        `json:"env"`
	Files       []file          `json:"files"`
	CPULimit    int64           `json:"cpuLimit"`
	ClockLimit  int64           `json:"clockLimit"`
	MemoryLimit int64           `json:"memoryLimit"`
	ProcLimit   int             `json:"procLimit"`
	CopyIn      map[string]file `json:"copyIn,omitempty"`
}

// Run runs a program to its end. An exit code other than 0 is an error. It copies stored files in
// first: a name inside and the id of each.
func (j *Judge) Run(ctx context.Context, args []string, stored map[string]string) error {
	c := command{
		Args: args, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
		Files:    []file{{Content: new("")}, {Name: "stdout", Max: 1 << 20}, {Name: "stderr", Max: 1 << 20}},
		CPULimit: 10e9, ClockLimit: 20e9, MemoryLimit: 512 << 20, ProcLimit: 64,
		CopyIn: map[string]file{},
	}
	for name, id := range stored {
		c.CopyIn[name] = file{FileID: id}
	}
	body, err := json.Marshal(map[string]any{"cmd": []command{c}})
	if err != nil {
		return err
	}
	var results []struct {
		Status     string
		ExitStatus int
		Error      string
		Files      map[string]string
	}
	if err := j.request(ctx, http.MethodPost, "/run", "application/json", bytes.NewReader(body), &results); err != nil {
		return err
	}
	if len(results) != 1 || results[0].Status != "Accepted" || results[0].ExitStatus != 0 {
		return fmt.Errorf("go-judge, %q: %+v", args, results)
	}
	return nil
}

// Close closes the connections.
func (j *Judge) Close() { j.http.CloseIdleConnections() }

// request sends a request and decodes the answer, unless into is nil. Any status but 200 is an
// error.
func (j *Judge) request(ctx context.Context, method, path, contentType string, body io.Reader, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, j.url+path, body)
	if err != nil {
		return err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := j.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %.200s", method, path, response.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
