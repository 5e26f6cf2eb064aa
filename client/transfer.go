package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
)

// Upload sends one mutation whose variable file is an Upload with this content,
// which is sent as it is read. Size is the content's, or -1. The error is an
// *Error if the server answered with one. After an error content may still be
// read from for a moment.
func (c *Client) Upload(ctx context.Context, query string, variables map[string]any, size int64, content io.Reader, into any) error {
	all := map[string]any{"file": nil}
	for name, value := range variables {
		all[name] = value
	}
	operations, err := json.Marshal(Request{query, all})
	if err != nil {
		return err
	}
	var before bytes.Buffer
	form := multipart.NewWriter(&before) // a buffer takes everything
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
	post.Header.Set("GraphQL-Require-Preflight", "1")
	return c.answer(post, into)
}

// Download opens what an address leads to that the API handed out
// (File.downloadUrl, Execution.outputUrl), from offset on, and tells how many
// bytes come. Reading fails if fewer do. The error is an *Error if the server
// answered with one.
func (c *Client) Download(ctx context.Context, address string, offset int64) (io.ReadCloser, int64, error) {
	get, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.url, "/graphql")+address, nil)
	if err != nil {
		return nil, 0, err
	}
	wanted := http.StatusOK
	if offset > 0 {
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
