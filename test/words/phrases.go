package words

import (
	"regexp"
	"strings"
	"sync"
)

// A phrase is banned because readers stumble over it: a calque, a riddle, or one of several
// words for one thing.
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
	ban(be+`\s+to\s+be\s+had`, "is available, or is unavailable"),
	ban(`(?:could|couldn't|may|will)\s+be\s+had`, "is available, or is unavailable"),
	ban(`see(?:s|n)?\s+to\s+(?:it|its?|that|the|them)`, "ensures, or handles"),
	ban(be+`\s+seen\s+to`, "is handled"),
	ban(be+`\s+told`, "is reported, or receives"),
	ban(`told\s+(?:of|about)`, "notified of"),
	ban(`tells`, "reports, says, or returns"),
	ban(`whoever`, "the caller, or the holder"),
	ban(`(?:for|of|to|by|from|and|or|but|so|than|as|only|all|does|is)\s+who\s+\pL+`, "the caller, the holder, or the subscriber"),
	ban(`for\s+whom`, "the caller whose"),
	ban(`(?:has|have|had|finds?|gets?)\s+no\s+room`, "doesn't fit, or waits in the queue"),
	ban(`only\s+so\s+(?:many|much)`, "at most N"),
	ban(`at\s+once`, "immediately, or concurrently, or at a time"),
	ban(`beside`, "next to, in addition to, or compared with"),
	ban(`(?:isn't|aren't|wasn't|weren't)\s+there`, "is missing, or doesn't exist"),
	ban(`that\s+(?:is|are)\s+there`, "that exists"),
	ban(`anew`, "again"),
	ban(`but\s+for`, "except"),
	ban(`save\s+for`, "except"),
	ban(be+`\s+away`, "is unavailable, or is absent"),
	ban(`in\s+vain`, "without success"),
	ban(be+`\s+let`, "is allowed"),
	ban(`go(?:es)?\s+by\s+(?:itself|themselves)`, "is removed automatically"),
	ban(`by\s+(?:itself|themselves)`, "on its own, automatically, or separately"),
	ban(`bec(?:omes|ome|ame)\s+of`, "happens to"),
	ban(`has\s+to\s+do\s+with`, "concerns"),
	ban(`br(?:ings|ing|ought)\s+along`, "includes"),
	ban(`from\s+then\s+on`, "afterwards"),
	ban(`by\s+then`, "before that"),
	ban(`for\s+good`, "permanently"),
	ban(`(?:an|no|any)\s+own`, "its own"),
	ban(`wins?\s+over`, "takes precedence over"),
	ban(be+`\s+(?:only\s+)?up\s+to\s+the`, "the caller decides"),
	ban(be+`\s+said`, "is reported, or says"),
	ban(`nothing\s+but`, "only"),
	ban(`as\s+(?:it|they)\s+comes?`, "immediately, or as it arrives"),
	ban(`comes?\s+to\s+(?:nothing|this|that|so)`, "amounts to"),
	ban(`does\s+(?:no\s+)?harm`, "is harmless"),
	ban(`harms\s+nobody`, "is harmless"),
	ban(`of\s+theirs`, "its own"),
	ban(`go(?:es|ing)?\s+on`, "continues"),
	ban(`any\s*more`, "no longer"),
	ban(`nobody\s+(?:can|could|may)\s+(?:tell|say|know)`, "is unknown"),
	ban(`hence|thereof|therein|thereby|wherein`, "so, or of it"),
}

// relative finds a sentence that begins with a relative clause, which readers take for a
// question: "What has no room waits". A real question ends with a question mark.
var relative = regexp.MustCompile(`(?:^|[.:!?;]\s+)\s*(?:What|Whatever|Who|Whose|Whom)\s[^.?!]*[.]`)
