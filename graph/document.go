package graph

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/lexer"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
)

// The limits of a document. They are checked before it is validated, since validation takes time
// that grows with the square of some of them. GraphiQL's introspection has 15 levels and some 300
// fields, with fragments counted wherever they are spread.
const (
	maxFields      = 1_000 // as written
	maxExpanded    = 2_000 // with fragments counted wherever they are spread
	maxLevels      = 20
	maxAliases     = 100
	maxDirectives  = 200
	maxName        = 256 // bytes: the search for similar names takes time that grows with their square
	maxDefinitions = 100 // operations and fragments; also the variables of one operation
)

// documentLimits is a gqlgen extension that refuses documents beyond the limits.
type documentLimits struct {
	known graphql.Cache[*ast.QueryDocument] // documents that passed the checks
}

func (documentLimits) ExtensionName() string { return "DocumentLimits" }

func (documentLimits) Validate(graphql.ExecutableSchema) error { return nil }

// MutateOperationParameters implements graphql.OperationParameterMutator.
func (d documentLimits) MutateOperationParameters(ctx context.Context, params *graphql.RawParams) *gqlerror.Error {
	if _, known := d.known.Get(ctx, params.Query); known {
		return nil
	}
	if err := checkTokens(params.Query); err != nil {
		return gqlerror.Wrap(err)
	}
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: params.Query}, transport.MaxTokens)
	if err != nil {
		return nil //nolint:nilerr // the executor finds the same error, with its position
	}
	if defers(doc) {
		return gqlerror.Wrap(runtime.Errorf(runtime.CodeInvalidInput, "this server doesn't support @defer: remove it"))
	}
	if message := measure(doc); message != "" {
		return gqlerror.Wrap(runtime.Errorf(runtime.CodeLimitExceeded, "%s", message))
	}
	return nil
}

// checkTokens refuses long names and numbers, and strings with half of a surrogate pair, which the
// parser replaces with U+FFFD. It finds nothing after the first error of the document's syntax.
func checkTokens(text string) error {
	tokens, halved := lexer.New(&ast.Source{Input: text}), clients.HasHalfPair(text)
	for range transport.MaxTokens {
		token, err := tokens.ReadToken()
		switch {
		case err != nil || token.Kind == lexer.EOF:
			return nil //nolint:nilerr // the executor finds the same error, with its position
		case token.Kind != lexer.String && token.Kind != lexer.BlockString && token.Kind != lexer.Comment && len(token.Value) > maxName:
			return runtime.Errorf(runtime.CodeLimitExceeded, "the document has a name or number of more than %d bytes: shorten it", maxName)
		case halved && token.Kind == lexer.String && strings.ContainsRune(token.Value, utf8.RuneError):
			return runtime.Invalid("query", "has half of a surrogate pair (\\ud800 to \\udfff) in line %d, which isn't text", token.Pos.Line)
		}
	}
	return nil
}

// defers reports whether a document wants a part of the answer later (@defer). No transport here
// sends one, and its resolvers would still run after the operation.
func defers(doc *ast.QueryDocument) bool {
	return slices.ContainsFunc(doc.Operations, func(o *ast.OperationDefinition) bool { return deferring(o.SelectionSet) }) ||
		slices.ContainsFunc(doc.Fragments, func(f *ast.FragmentDefinition) bool { return deferring(f.SelectionSet) })
}

func deferring(set ast.SelectionSet) bool {
	return slices.ContainsFunc(set, func(selection ast.Selection) bool {
		switch s := selection.(type) {
		case *ast.Field:
			return deferring(s.SelectionSet)
		case *ast.InlineFragment:
			return s.Directives.ForName("defer") != nil || deferring(s.SelectionSet)
		case *ast.FragmentSpread:
			return s.Directives.ForName("defer") != nil
		}
		return false
	})
}

// measure returns the message about the first limit that a document exceeds, or "".
func measure(doc *ast.QueryDocument) string {
	if len(doc.Operations)+len(doc.Fragments) > maxDefinitions {
		return fmt.Sprintf("the document has more than %d operations and fragments: split it", maxDefinitions)
	}
	m := &meter{fragments: map[string]ast.SelectionSet{}, measured: map[string]extent{}}
	for _, fragment := range doc.Fragments {
		m.fragments[fragment.Name] = fragment.SelectionSet
		m.directives += len(fragment.Directives)
		m.count(fragment.SelectionSet)
	}
	for _, operation := range doc.Operations {
		if len(operation.VariableDefinitions) > maxDefinitions {
			return fmt.Sprintf("the operation has more than %d variables: use an input object", maxDefinitions)
		}
		m.directives += len(operation.Directives)
		m.count(operation.SelectionSet)
	}
	switch {
	case m.fields > maxFields:
		return fmt.Sprintf("the document has more than %d fields: split it", maxFields)
	case m.aliases > maxAliases:
		return fmt.Sprintf("the document has more than %d aliases: split it", maxAliases)
	case m.directives > maxDirectives:
		return fmt.Sprintf("the document has more than %d directives: split it", maxDirectives)
	}
	for _, operation := range doc.Operations {
		all := m.expand(operation.SelectionSet)
		if all.levels > maxLevels {
			return fmt.Sprintf("the operation is nested more than %d levels deep: split it", maxLevels)
		}
		if all.fields > maxExpanded {
			return fmt.Sprintf("the operation has more than %d fields, including those of fragments: split it", maxExpanded)
		}
	}
	return ""
}

// A meter counts what the fragments and operations of a document have.
type meter struct {
	fields, aliases, directives int
	fragments                   map[string]ast.SelectionSet
	measured                    map[string]extent // of fragments; one that is being measured has an empty extent
}

// An extent is the size of a selection, with its fragments.
type extent struct{ fields, levels int }

// count adds a selection as it is written.
func (m *meter) count(set ast.SelectionSet) {
	for _, selection := range set {
		switch s := selection.(type) {
		case *ast.Field:
			m.fields++
			m.directives += len(s.Directives)
			if s.Alias != s.Name {
				m.aliases++
			}
			m.count(s.SelectionSet)
		case *ast.InlineFragment:
			m.fields++
			m.directives += len(s.Directives)
			m.count(s.SelectionSet)
		case *ast.FragmentSpread:
			m.fields++
			m.directives += len(s.Directives)
		}
	}
}

// expand measures a selection with its fragments. A fragment that spreads itself counts as empty,
// since validation refuses it.
func (m *meter) expand(set ast.SelectionSet) extent {
	var all extent
	add := func(fields, levels int) {
		all.fields = min(all.fields+fields, maxExpanded+1)
		all.levels = max(all.levels, levels)
	}
	for _, selection := range set {
		switch s := selection.(type) {
		case *ast.Field:
			below := m.expand(s.SelectionSet)
			add(below.fields+1, below.levels+1)
		case *ast.InlineFragment:
			below := m.expand(s.SelectionSet)
			add(below.fields, below.levels)
		case *ast.FragmentSpread:
			below, known := m.measured[s.Name]
			if !known {
				m.measured[s.Name] = extent{}
				below = m.expand(m.fragments[s.Name])
				m.measured[s.Name] = below
			}
			add(below.fields, below.levels)
		}
	}
	return all
}

// A documentCache keeps short validated documents, at most 64 MiB in total.
type documentCache struct {
	graphql.Cache[*ast.QueryDocument]
}

const (
	cachedDocuments = 250
	cachedLength    = 16 << 10
	cachedTokens    = 1_000 // their memory is about 256 KiB: see transport.Tokens
)

func newDocumentCache() documentCache {
	return documentCache{lru.New[*ast.QueryDocument](cachedDocuments)}
}

// Add implements graphql.Cache.
func (c documentCache) Add(ctx context.Context, text string, doc *ast.QueryDocument) {
	if len(text) <= cachedLength && transport.Tokens(text) <= cachedTokens {
		c.Cache.Add(ctx, text, doc)
	}
}
