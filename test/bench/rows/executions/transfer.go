package executions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// fileSize is the size of the transferred file.
const fileSize = 50_000_000

// Transfer returns the rows of a file uploaded and downloaded.
func Transfer() []rows.Row {
	return []rows.Row{{
		Name:  "transfer/upload",
		What:  "MB/s of an upload of a 50 MB file into a runner: uploadFile, a multipart request.",
		Floor: "A bare HTTP PUT, to a process that writes it to a file.",
		Unit:  measure.MBPerSecond, Per: "MB",
		Open: openTransfer(func(b *bed.Bed, s *bed.Server, runner string, content []byte) (row, floor func(context.Context) error) {
			return func(ctx context.Context) error { return upload(ctx, s, runner, content) },
				func(ctx context.Context) error {
					return send(ctx, http.MethodPut, b.Floors.URL+"/upload", nil, bytes.NewReader(content), nil)
				}
		}),
	}, {
		Name:  "transfer/download",
		What:  "MB/s of a download of the same file from a runner, from its File.downloadUrl.",
		Floor: "A bare HTTP GET, from a process that has it in memory.",
		Unit:  measure.MBPerSecond, Per: "MB",
		Open: openTransfer(func(b *bed.Bed, s *bed.Server, runner string, _ []byte) (row, floor func(context.Context) error) {
			return func(ctx context.Context) error { return download(ctx, s, runner) },
				func(ctx context.Context) error {
					return receive(ctx, b.Floors.URL+"/download?size="+strconv.Itoa(fileSize))
				}
		}),
	}}
}

// openTransfer prepares a row that transfers a file of fileSize. ways returns the transfers of the
// row and of its floor.
func openTransfer(ways func(b *bed.Bed, s *bed.Server, runner string, content []byte) (row, floor func(context.Context) error)) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		s, runner, err := b.Claimed(ctx, 0)
		if err != nil {
			return rows.Pair{}, err
		}
		content := bytes.Repeat([]byte("0123456789abcdef\n\xff\x00\x80"), fileSize/20)
		if err := upload(ctx, s, runner, content); err != nil {
			return rows.Pair{}, err
		}
		row, floor := ways(b, s, runner, content)
		rated := func(do func(context.Context) error) rows.Probe {
			return func(ctx context.Context, r *measure.Round) error {
				return r.Rate(fileSize/1e6, func() error { return do(ctx) })
			}
		}
		return rows.Pair{Row: rated(row), Floor: rated(floor)}, rows.Warm(ctx, rated(row), rated(floor))
	}
}

// upload sends a file as a GraphQL multipart request.
func upload(ctx context.Context, s *bed.Server, runner string, content []byte) error {
	const mutation = `mutation($runner: ID!, $file: Upload!) { uploadFile(runnerId: $runner, path: "file", file: $file) { file { size } } }`
	operations, err := json.Marshal(map[string]any{"query": mutation, "variables": map[string]any{"runner": runner, "file": nil}})
	if err != nil {
		return err
	}
	var head bytes.Buffer // writes to it don't fail
	form := multipart.NewWriter(&head)
	_ = form.WriteField("operations", string(operations))
	_ = form.WriteField("map", `{"0": ["variables.file"]}`)
	_, _ = form.CreateFormFile("0", "file")
	body := io.MultiReader(&head, bytes.NewReader(content), bytes.NewReader([]byte("\r\n--"+form.Boundary()+"--\r\n")))
	header := http.Header{"Content-Type": {form.FormDataContentType()}, "Graphql-Require-Preflight": {"1"}}
	var answer struct {
		Data struct {
			UploadFile struct{ File struct{ Size int64 } }
		}
		Errors json.RawMessage
	}
	err = send(ctx, http.MethodPost, s.URL+"/graphql", header, body, &answer)
	if err == nil && answer.Data.UploadFile.File.Size != int64(len(content)) {
		err = fmt.Errorf("%d of %d bytes were uploaded: %s", answer.Data.UploadFile.File.Size, len(content), answer.Errors)
	}
	return err
}

// download requests a file's URL and reads its content. Both count.
func download(ctx context.Context, s *bed.Server, runner string) error {
	out, err := client.GetFile(ctx, s, runner, "file")
	if err != nil {
		return err
	}
	if out.Runner == nil || out.Runner.File == nil || out.Runner.File.DownloadUrl == nil {
		return errors.New("there is no file to download")
	}
	return receive(ctx, s.URL+*out.Runner.File.DownloadUrl)
}

// send sends a body. It decodes the answer unless into is nil.
func send(ctx context.Context, method, url string, header http.Header, body io.Reader, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %.500s", response.Status, text)
	case into == nil:
		return nil
	}
	return json.Unmarshal(text, into)
}

// receive downloads a file.
func receive(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || n != fileSize) {
		err = fmt.Errorf("%s, with %d of %d bytes", response.Status, n, fileSize)
	}
	return err
}
