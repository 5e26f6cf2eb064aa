package routes

import (
	"net/http"
	"slices"

	"github.com/rs/cors"

	"github.com/rockpool/rockpool/graph/download"
	"github.com/rockpool/rockpool/graph/transport"
)

// crossOrigin returns a handler that allows pages of these origins to use next. methods and headers are
// allowed in addition to those of the API. It answers OPTIONS with the methods that next's
// header Allow names. No route of next accepts the method OPTIONS itself.
func crossOrigin(origins, methods, headers []string, next http.Handler) http.Handler {
	pages := cors.New(cors.Options{
		AllowOriginFunc: func(origin string) bool { return allowedOrigin(origins, origin) },
		AllowedMethods:  append(methods, http.MethodGet, http.MethodHead, http.MethodPost),
		AllowedHeaders:  slices.Concat([]string{"Content-Type", "Authorization", "Last-Event-ID", "Range", "If-Range", "If-None-Match"}, transport.PreflightHeaders, headers),
		ExposedHeaders:  []string{"Content-Disposition", "Content-Length", "Content-Range", "ETag", "Mcp-Session-Id", download.LostHeader},
		MaxAge:          600,
	})
	return pages.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			w = &options{ResponseWriter: w}
		}
		next.ServeHTTP(w, r)
	}))
}

// options turns status 405 into 204 without a body.
type options struct {
	http.ResponseWriter
	answered bool
}

// Unwrap supports http.ResponseController.
func (w *options) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *options) WriteHeader(status int) {
	if w.answered = status == http.StatusMethodNotAllowed; w.answered {
		for _, name := range []string{"Content-Type", "Content-Length"} {
			w.Header().Del(name)
		}
		w.Header().Set("Allow", w.Header().Get("Allow")+", "+http.MethodOptions)
		status = http.StatusNoContent
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *options) Write(p []byte) (int, error) {
	if w.answered {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
