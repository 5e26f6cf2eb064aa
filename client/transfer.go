package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
)

// Upload sends a mutation whose variable "file" is an Upload with this content. It streams the
// content. size is the content's length in bytes, or -1 if unknown. The errors are those of
// [Client.Do]. After an error, a goroutine of net/http may still read from content briefly.
func (c *Client) Upload(ctx context.Context, query string, variables map[string]any, size int64, content io.Reader, into any) error {
	all := map[string]any{"file": nil}
	for name, value := range variables {
		all[name] = value
	}
	operations, err := encode(Request{query, all})
	if err != nil {
		return err
	}
	// Only the parts around the content are in memory, so it is streamed, and the length is known.
	var before bytes.Buffer
	form := multipart.NewWriter(&before) // writing to a Buffer never fails
	_ = form.WriteField("operations", string(operations))
	_ = form.WriteField("map", `{"0": ["variables.file"]}`)
	_, _ = form.CreateFormFile("0", "file")
	after := "\r\n--" + form.Boundary() + "--\r\n"
	length := int64(-1)
	if size >= 0 {
		length = int64(before.Len()) + size + int64(len(after))
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, io.MultiReader(&before, content, strings.NewReader(after)))
	if err != nil {
		return err
	}
	post.ContentLength = length
	post.Header.Set("Content-Type", form.FormDataContentType())
	// The server refuses multipart requests without such a header.
	post.Header.Set("GraphQL-Require-Preflight", "1")
	return c.answer(post, into)
}

// Download opens a signed address of the API (File.downloadUrl, Execution.outputUrl) at an
// offset in bytes. It also returns the number of bytes to read, -1 if unknown. Reading fails if
// fewer bytes arrive. The errors are those of [Client.Do]. The caller must close the reader.
func (c *Client) Download(ctx context.Context, address string, offset int64) (io.ReadCloser, int64, error) {
	get, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.url, "/graphql")+address, nil)
	if err != nil {
		return nil, 0, err
	}
	wanted := http.StatusOK
	if offset > 0 {
		// Only this status says that the response begins at offset.
		wanted = http.StatusPartialContent
		get.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	response, err := c.http.Do(get)
	if err != nil {
		return nil, 0, err
	}
	if response.StatusCode == wanted {
		return response.Body, response.ContentLength, nil
	}
	defer response.Body.Close()
	if err := c.read(response, nil); err != nil {
		return nil, 0, err
	}
	return nil, 0, c.stranger(response)
}
