package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Report is what the manifests do; -o json prints it.
type Report struct {
	// Ends is true if something ends or is refused, or may be: exit code 4.
	Ends bool `json:"ends"`
	// Changes are the objects that change or have effects, sorted by kind, namespace and name.
	Changes []Change `json:"changes"`
	// Unchanged is the number of manifests that change nothing.
	Unchanged int `json:"unchanged"`
	// Ignored is the number of objects of other kinds.
	Ignored int `json:"ignored"`
}

// NewReport decides what applying the manifests does.
func NewReport(s State, ignored int) Report {
	r := Report{Changes: []Change{}, Ignored: ignored}
	for _, o := range s.Merchants {
		add(&r, o, func(m *v1alpha1.Merchant) any { return m.Spec }, s.merchantEffects(o))
	}
	for _, o := range s.ApiKeys {
		add(&r, o, func(k *v1alpha1.ApiKey) any { return k.Spec }, s.keyEffects(o))
	}
	for _, o := range s.Unknown {
		add(&r, o, func(*struct{}) any { return nil }, nil)
	}
	slices.SortStableFunc(r.Changes, func(a, b Change) int {
		return slices.Compare([]string{b.Kind, a.Namespace, a.Name}, []string{a.Kind, b.Namespace, b.Name}) // Merchants first
	})
	return r
}

// add takes an object that is in the manifests, or that a prune deletes.
func add[T any](r *Report, o Object[T], spec func(*T) any, effects []Effect) {
	if o.Source == "" && o.PrunedBy == "" {
		return
	}
	c := newChange(o, spec, effects)
	if c.Action == "none" {
		// What is wrong with an object that stays as it is, is no effect of the manifests.
		c.Effects = slices.DeleteFunc(c.Effects, func(e Effect) bool { return e.Type == "NotReady" || e.Type == "StatusBehind" })
		if len(c.Effects) == 0 {
			r.Unchanged++
			return
		}
	}
	if c.Effects == nil {
		c.Effects = []Effect{}
	}
	for _, e := range c.Effects {
		r.Ends = r.Ends || e.Severity != Note
	}
	r.Changes = append(r.Changes, c)
}

// changedFields are the names of the fields of two specs that differ, without values.
func changedFields(before, after any) []string {
	return differences("spec", content(before), content(after))
}

func content(spec any) any {
	var value any
	text, _ := json.Marshal(spec)    //nolint:errchkjson // a spec was read from JSON
	_ = json.Unmarshal(text, &value) // it was written above
	return value
}

func differences(path string, before, after any) []string {
	was, wasMap := before.(map[string]any)
	is, isMap := after.(map[string]any)
	if !wasMap && !isMap || wasMap != isMap && before != nil && after != nil {
		if fmt.Sprint(before) == fmt.Sprint(after) {
			return nil
		}
		return []string{path}
	}
	names := maps.Clone(was)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, is)
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fields = append(fields, differences(path+"."+name, was[name], is[name])...)
	}
	return fields
}

// signs of the actions, as a diff has them.
var signs = map[string]string{"create": "+", "change": "~", "delete": "-", "refused": "!", "unknown": "?", "none": " "}

// words of the severities.
var words = map[Severity]string{Refused: "REFUSED", Ends: "ENDS", May: "MAY END", Note: "note"}

// WriteText writes the report for eyes.
func (r Report) WriteText(to io.Writer) error {
	for _, c := range r.Changes {
		fmt.Fprintf(to, "%s %s %s/%s", signs[c.Action], Plain(c.Kind), Plain(c.Namespace), Plain(c.Name))
		if c.Source != "" {
			fmt.Fprintf(to, " (%s)", Plain(c.Source))
		}
		if len(c.Fields) > 0 {
			fmt.Fprintf(to, ": %s", strings.Join(c.Fields, ", "))
		}
		fmt.Fprintln(to)
		for _, e := range c.Effects {
			fmt.Fprintf(to, "    %-8s %s\n", words[e.Severity], Plain(e.Message))
		}
	}
	_, err := fmt.Fprintln(to, r.summary())
	return err
}

// summary is one line.
func (r Report) summary() string {
	n := map[string]int{}
	for _, c := range r.Changes {
		n[c.Action]++
	}
	unknown := ""
	if n["unknown"] > 0 {
		unknown = fmt.Sprintf("%d unknown, ", n["unknown"])
	}
	text := fmt.Sprintf("%d to create, %d to change, %d to delete, %d refused, %s%d unchanged; %s of other kinds ignored.",
		n["create"], n["change"], n["delete"], n["refused"], unknown, r.Unchanged+n["none"], count(r.Ignored, "object"))
	if r.Ends {
		return text + " Something ends or is refused, or may be."
	}
	return text + " Nothing ends or is refused."
}

// WriteJSON writes the report for programs.
func (r Report) WriteJSON(to io.Writer) error {
	r.Changes = slices.Clone(r.Changes)
	for i, c := range r.Changes {
		c.Effects = slices.Clone(c.Effects)
		for j := range c.Effects {
			c.Effects[j].Message = Plain(c.Effects[j].Message)
		}
		r.Changes[i] = c
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "    ")
	return encoder.Encode(r)
}

// maxMarkdown is less than a comment on GitHub or GitLab may have.
const maxMarkdown = 60_000

// WriteMarkdown writes the report for a merge request. What tenants can write is in code spans, which neither mention people nor link.
func (r Report) WriteMarkdown(to io.Writer) error {
	var text strings.Builder
	text.WriteString("### Merchants and keys\n\n" + r.summary() + "\n")
	quiet := func(c Change) bool {
		return !slices.ContainsFunc(c.Effects, func(e Effect) bool { return e.Severity != Note })
	}
	loud := slices.DeleteFunc(slices.Clone(r.Changes), quiet)
	rest := slices.DeleteFunc(slices.Clone(r.Changes), func(c Change) bool { return !quiet(c) })
	for i, c := range slices.Concat(loud, rest) {
		if i == len(loud) {
			text.WriteString("\n<details><summary>Changes that end nothing</summary>\n")
		}
		entry := markdown(c)
		if text.Len()+len(entry) > maxMarkdown {
			fmt.Fprintf(&text, "\n%s more: see the text of the plan.\n", count(len(r.Changes)-i, "object"))
			break
		}
		text.WriteString(entry)
	}
	if strings.Contains(text.String(), "<details>") {
		text.WriteString("\n</details>\n")
	}
	_, err := io.WriteString(to, text.String())
	return err
}

func markdown(c Change) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\n**%s %s** %s", c.Action, quoted(c.Kind), quoted(c.Namespace+"/"+c.Name))
	if len(c.Fields) > 0 {
		text.WriteString(": " + list(c.Fields))
	}
	text.WriteString("\n")
	for _, e := range c.Effects {
		fmt.Fprintf(&text, "- **%s** %s\n", words[e.Severity], e.Message)
	}
	return text.String()
}

// maxText is the longest piece of somebody's text in a report.
const maxText = 1000

// quoted puts somebody's text between backticks: on one line, bounded, without backticks or control characters of its own.
func quoted(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '`':
			return '\''
		case !unicode.IsPrint(r):
			return ' '
		}
		return r
	}, text)
	if cut := []rune(text); len(cut) > maxText {
		text = string(cut[:maxText]) + "…"
	}
	if strings.TrimSpace(text) == "" {
		text = "?"
	}
	return "`" + text + "`"
}

// Plain returns a text without backticks, and without what a terminal would obey.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '`':
			return -1
		case !unicode.IsPrint(r):
			return ' '
		}
		return r
	}, text)
}

// maxNames is the longest list in a message.
const maxNames = 10

func list(names []string) string {
	quotedNames := make([]string, 0, maxNames)
	for _, name := range names[:min(len(names), maxNames)] {
		quotedNames = append(quotedNames, quoted(name))
	}
	text := strings.Join(quotedNames, ", ")
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// prefixes are what the operator writes; a tenant may write anything into a status.
var prefixes = regexp.MustCompile(`^mk_(live|test)_[a-z2-7]{12}_[0-9A-Za-z]{4}$`)

func shown(prefix string) string {
	if prefixes.MatchString(prefix) {
		return prefix
	}
	return ""
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
