package words

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// readGo returns comments whole, and string literals for their phrases. It leaves out the
// literals of tests, which are data, and the preambles of cgo.
func readGo(name string, source []byte) ([]paragraph, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	var found []paragraph
	preambles := preamblesOf(file)
	for _, group := range file.Comments {
		if preambles[group] {
			continue
		}
		var text []string
		for _, c := range group.List {
			text = append(text, strings.Split(c.Text, "\n")...)
		}
		found = append(found, prose(text, files.Position(group.Pos()).Line, "//")...)
	}

	if strings.HasSuffix(name, "_test.go") {
		return found, nil
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				found = append(found, paragraph{files.Position(literal.Pos()).Line, text, true})
			}
		}
		return true
	})
	return found, nil
}

// preamblesOf returns the comments before import "C". They are C code, not prose.
func preamblesOf(file *ast.File) map[*ast.CommentGroup]bool {
	found := map[*ast.CommentGroup]bool{}
	for _, decl := range file.Decls {
		imports, ok := decl.(*ast.GenDecl)
		if !ok || imports.Tok != token.IMPORT {
			continue
		}
		for _, spec := range imports.Specs {
			if spec := spec.(*ast.ImportSpec); spec.Path.Value == `"C"` {
				found[imports.Doc], found[spec.Doc] = true, true
			}
		}
	}
	return found
}

// readMarkdown leaves out blocks of code, except their comments. A cell of a table is a paragraph that may be wide.
func readMarkdown(text string) []paragraph {
	var found []paragraph
	var open []string
	began := 0
	end := func() {
		if len(open) > 0 {
			found = append(found, paragraph{line: began, text: strings.Join(open, "\n")})
		}
		open = nil
	}

	fence := ""
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if fence != "" {
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			if _, comment, hasComment := strings.Cut(line, "# "); hasComment {
				found = append(found, paragraph{i + 1, comment, true})
			}
			continue
		}
		switch {
		case strings.HasPrefix(trimmed, "```"), strings.HasPrefix(trimmed, "~~~"):
			end()
			fence = trimmed[:3]
			continue
		case trimmed == "", strings.HasPrefix(trimmed, "<"):
			end()
			continue
		case strings.HasPrefix(trimmed, "|"):
			end()
			for _, cell := range strings.Split(trimmed, "|") {
				found = append(found, paragraph{i + 1, cell, true})
			}
			continue
		case strings.HasPrefix(trimmed, "#"), isItem(trimmed):
			end()
		}
		if open == nil {
			began = i + 1
		}
		open = append(open, line)
	}
	end()
	return found
}

func isItem(line string) bool {
	marker, _, found := strings.Cut(line, " ")
	if !found {
		return false
	}
	if marker == "-" || marker == "*" || marker == "+" {
		return true
	}
	number, isNumbered := strings.CutSuffix(marker, ".")
	_, err := strconv.Atoi(number)
	return isNumbered && err == nil
}

// readSchema returns the descriptions and comments of a GraphQL schema.
func readSchema(text string) []paragraph {
	var found []paragraph
	inside := false
	var open []string
	began := 0
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		quotes := strings.Count(line, `"""`)
		switch {
		case quotes == 2:
			found = append(found, prose([]string{strings.ReplaceAll(line, `"""`, "   ")}, i+1, "")...)
		case quotes == 1 && inside:
			found = append(found, prose(open, began, "")...)
			open, inside = nil, false
		case quotes == 1:
			inside, began = true, i+2
		case inside:
			open = append(open, line)
		case strings.HasPrefix(trimmed, `"`):
			found = append(found, prose([]string{line}, i+1, "")...)
		}
	}
	return append(found, comments(text, "#")...)
}

// comments returns the comments that fill whole lines.
func comments(text, marker string) []paragraph {
	var found []paragraph
	var open []string
	began := 0
	for i, line := range append(strings.Split(text, "\n"), "") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, marker) && !strings.HasPrefix(trimmed, "#!") {
			if open == nil {
				began = i + 1
			}
			open = append(open, line)
			continue
		}
		found = append(found, prose(open, began, marker)...)
		open = nil
	}
	return found
}

// lines returns every line by itself, for its phrases.
func lines(text string) []paragraph {
	var found []paragraph
	for i, line := range strings.Split(text, "\n") {
		found = append(found, paragraph{i + 1, line, true})
	}
	return found
}

// prose divides a comment into paragraphs. An indented line is code or a picture, a
// directive isn't prose; both are left out. An item of a list is a paragraph.
func prose(text []string, line int, marker string) []paragraph {
	var found []paragraph
	var open []string
	began := 0
	end := func() {
		if len(open) > 0 {
			found = append(found, paragraph{line: began, text: strings.Join(open, "\n")})
		}
		open = nil
	}
	for i, raw := range text {
		content := strings.TrimSpace(raw)
		if marker != "" {
			content = strings.TrimPrefix(content, marker)
		}
		trimmed := strings.TrimSpace(content)
		isCode := marker != "" && (strings.HasPrefix(content, "\t") || strings.HasPrefix(content, "   ")) && !isItem(trimmed) && open == nil
		isDirective := marker == "//" && len(content) > 0 && content[0] >= 'a' && content[0] <= 'z' && strings.Contains(content, ":")
		if trimmed == "" || isCode || isDirective {
			end()
			continue
		}
		if isItem(trimmed) {
			end()
		}
		if open == nil {
			began = line + i
		}
		// Markers become spaces, so that columns stay.
		open = append(open, strings.Replace(raw, marker, strings.Repeat(" ", len(marker)), 1))
	}
	end()
	return found
}
