package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/executions"
	"github.com/rockpool/rockpool/runtime/identity"
)

// Files opens files of runners.
type Files interface {
	OpenFile(ctx context.Context, id runtime.RunnerID, path string, offset int64) (runtime.File, io.ReadCloser, error)
}

// Outputs opens what executions have printed.
type Outputs interface {
	OpenOutput(ctx context.Context, id runtime.ExecutionID, stream runtime.Stream) (*executions.Output, error)
}

// Callers authenticates requests. routes.Admission implements it.
type Callers interface {
	// Shown returns the caller of a request; shown is false if the request has no credential.
	Shown(r *http.Request) (caller identity.Caller, shown bool, err error)
	// ByID returns the caller of a token's id. It returns an error if the token has ended.
	ByID(id string) (identity.Caller, error)
}

// A Handler serves the addresses of its Links, and requests with a token or a grant.
type Handler struct {
	Links   *Links
	Files   Files
	Outputs Outputs
	Callers Callers
	Refuse  func(w http.ResponseWriter, r *http.Request, status int, err error) // responds with an error
}

// Register adds the handler's routes.
func (h Handler) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /files/{id}", h.file)
	mux.HandleFunc("GET /outputs/{id}", h.output)
}

// LostHeader is the header with the number of printed bytes that the output lacks. It is left out
// if none is missing.
const LostHeader = "Rockpool-Lost-Bytes"

// file serves a runner's file, or a range of it.
func (h Handler) file(w http.ResponseWriter, r *http.Request) {
	confine(w.Header())
	query, id := r.URL.Query(), r.PathValue("id")
	at := query.Get("path")
	ctx, release, err := h.admit(w, r, query, "file", id, at)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	defer release()
	content, err := h.open(ctx, runtime.RunnerID(id), at)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	defer content.Close()
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Disposition", disposition("attachment", path.Base(at)))
	header.Set("Last-Modified", content.file.ModifiedAt.UTC().Format(http.TimeFormat))
	header.Set("ETag", content.tag())
	h.serve(w, r, &errorKeeper{ReadSeeker: content, ended: ctx.Err})
}

// output serves what an execution has printed, as text or as a recording.
func (h Handler) output(w http.ResponseWriter, r *http.Request) {
	confine(w.Header())
	query, id := r.URL.Query(), r.PathValue("id")
	ctx, release, err := h.admit(w, r, query, "output", id)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	defer release()
	stream, err := streamOf(query.Get("stream"))
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	content, err := h.Outputs.OpenOutput(ctx, runtime.ExecutionID(id), stream)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	defer content.Close()
	switch query.Get("format") {
	case "":
	case "asciicast":
		h.recording(w, r, content, ctx.Err)
		return
	default:
		h.refuse(w, r, runtime.Invalid("format", "must be asciicast, or left out for the bytes alone"))
		return
	}
	name := id
	if stream != 0 {
		name += "." + strings.ToLower(stream.String())
	}
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("Content-Disposition", disposition("inline", name+".txt"))
	header.Set("ETag", fmt.Sprintf(`"%s-%d-%d"`, id, stream, content.Size())) // a log only grows
	if lost := content.Lost(); lost > 0 {
		header.Set(LostHeader, strconv.FormatInt(lost, 10))
	}
	h.serve(w, r, &errorKeeper{ReadSeeker: content, ended: ctx.Err})
}

// admit returns the context of a download. A signed address suffices: the context is then that of
// the caller who requested it. Otherwise it is that of the request's token or grant. When the
// context ends, the download is cut off, even if its client reads nothing. The client sees that the
// download is incomplete.
func (h Handler) admit(w http.ResponseWriter, r *http.Request, query url.Values, what ...string) (context.Context, func(), error) {
	caller, shown, err := identity.Caller{}, false, error(nil)
	// With a signature, another credential of the request isn't checked.
	if !query.Has("signature") {
		caller, shown, err = h.Callers.Shown(r)
	}
	if err == nil && !shown {
		if err = h.Links.check(query, what...); err == nil {
			caller, err = h.Callers.ByID(query.Get("token"))
		}
	}
	if err != nil {
		return nil, nil, err
	}
	ctx, release := caller.Bind(r.Context())
	cut := make(chan struct{})
	spare := context.AfterFunc(ctx, func() {
		defer close(cut)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now()) // a handler that can't be cut off ends at its next read
	})
	return ctx, func() {
		spared := spare()
		release()
		if !spared {
			<-cut // w must not be used after its handler
			panic(http.ErrAbortHandler)
		}
	}, nil
}

// streamOf returns the stream with a name; for no name 0, which is both.
func streamOf(name string) (runtime.Stream, error) {
	switch strings.ToLower(name) {
	case "":
		return 0, nil
	case "stdout":
		return runtime.Stdout, nil
	case "stderr":
		return runtime.Stderr, nil
	}
	return 0, runtime.Invalid("stream", "must be stdout or stderr, or left out for both")
}

// confine keeps a browser from running a program's output as a page of this server, from caching
// it, and from sending its address to other sites.
func confine(header http.Header) {
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "private, no-store")
	header.Set("Referrer-Policy", "no-referrer")
}

// serve responds with the content, or with the one requested range. It responds to a request for
// several ranges with the whole content. If a read fails, it breaks the connection, since the
// announced length can't be reached.
func (h Handler) serve(w http.ResponseWriter, r *http.Request, content *errorKeeper) {
	if strings.Contains(r.Header.Get("Range"), ",") {
		r.Header.Del("Range")
	}
	// No Last-Modified: If-Range with whole seconds could join two versions. The tag is exact.
	http.ServeContent(&rangeWriter{ResponseWriter: w, refuse: func(w http.ResponseWriter) {
		size, _ := content.Seek(0, io.SeekEnd) // ServeContent did it before
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		h.Refuse(w, r, http.StatusRequestedRangeNotSatisfiable, runtime.Invalid("Range", "must be bytes=FIRST-LAST within the %d bytes of the content", size))
	}}, r, "", time.Time{}, content)
	if content.failed != nil {
		panic(http.ErrAbortHandler)
	}
}

// rangeWriter responds to an invalid range in the same form as to any other error.
type rangeWriter struct {
	http.ResponseWriter
	refuse  func(http.ResponseWriter)
	refused bool
}

func (w *rangeWriter) WriteHeader(status int) {
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable; w.refused {
		w.Header().Del("Content-Disposition")
		w.Header().Del("Content-Length")
		confine(w.Header())
		w.refuse(w.ResponseWriter)
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *rangeWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// errorKeeper keeps the error of a read, because http.ServeContent doesn't return it.
type errorKeeper struct {
	io.ReadSeeker
	ended  func() error // the reason why reading must stop, for example a revoked token
	failed error
}

// Read implements io.Reader. It fails when reading must stop.
func (w *errorKeeper) Read(p []byte) (int, error) {
	if w.failed = w.ended(); w.failed != nil {
		return 0, w.failed
	}
	n, err := w.ReadSeeker.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.failed = err
	}
	return n, err
}

// refuse responds with an error and its status.
func (h Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.Refuse(w, r, statusOf(err), err)
}

func statusOf(err error) int {
	if errors.Is(err, errExpired) {
		return http.StatusGone
	}
	switch runtime.CodeOf(err) {
	case runtime.CodeInvalidInput:
		return http.StatusBadRequest
	case runtime.CodeUnauthenticated:
		return http.StatusUnauthorized
	case runtime.CodeForbidden:
		return http.StatusForbidden
	case runtime.CodeRunnerGone:
		return http.StatusGone
	case runtime.CodeExecutionNotFound, runtime.CodeFileError:
		return http.StatusNotFound
	case runtime.CodeConflict:
		return http.StatusConflict
	case runtime.CodeLimitExceeded, runtime.CodeQuotaExceeded:
		return http.StatusTooManyRequests
	case runtime.CodeClusterUnavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
