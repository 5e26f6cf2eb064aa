package words

import (
	"regexp"
	"strings"
	"sync"
)

// A phrase is banned because readers stumble over it. These are the ones that still slip in.
type phrase struct {
	pattern *regexp.Regexp
	instead string
}

func ban(pattern, instead string) phrase {
	return phrase{regexp.MustCompile(`(?i)\b(?:` + pattern + `)\b`), instead}
}

// anyPhrase finds whether a text has one of the phrases, in one pass.
var anyPhrase = sync.OnceValue(func() *regexp.Regexp {
	var all []string
	for _, p := range phrases {
		all = append(all, p.pattern.String())
	}
	return regexp.MustCompile(strings.Join(all, "|"))
})

const be = `(?:is|are|was|were|be|been|isn't|aren't|wasn't|weren't)`

var phrases = []phrase{
	ban(`can(?:'t|not)?\s+be\s+had`, "is unavailable, or can't be started"),
	ban(`(?:could|couldn't|may|will)\s+be\s+had`, "is available, or is unavailable"),
	ban(`see(?:s|n)?\s+to\s+(?:it|its?|that|the|them)`, "ensures, or handles"),
	ban(be+`\s+told`, "is reported, or receives"),
	ban(`tells`, "reports, says, or returns"),
	ban(`whoever`, "the caller, or the holder"),
	ban(`(?:for|of|to|by|from|and|or|but|so|than|as|only|all|does|is)\s+who\s+\pL+`, "the caller, the holder, or the subscriber"),
	ban(`(?:has|have|had|finds?|gets?)\s+no\s+room`, "doesn't fit, or waits in the queue"),
	ban(`only\s+so\s+(?:many|much)`, "at most N"),
	ban(`at\s+once`, "immediately, or concurrently, or at a time"),
	ban(`beside`, "next to, in addition to, or compared with"),
	ban(`anew`, "again"),
	ban(`in\s+vain`, "without success"),
	ban(`go(?:es)?\s+by\s+(?:itself|themselves)`, "is removed automatically"),
	ban(`by\s+(?:itself|themselves)`, "on its own, automatically, or separately"),
}

// relative finds a sentence that begins with a relative clause, which readers take for a
// question: "What has no room waits". A real question ends with a question mark.
var relative = regexp.MustCompile(`(?:^|[.:!?;]\s+)\s*(?:What|Whatever|Who|Whose|Whom)\s[^.?!]*[.]`)
