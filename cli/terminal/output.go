package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// Output is the flag -o.
type Output struct {
	// Format is the value of the flag; empty: text for people.
	Format string

	formats []string
}

// Formats of -o. Without -o a table is printed.
const (
	FormatJSON = "json"
	FormatYAML = "yaml"
	FormatName = "name"
)

// AddOutput adds -o with these formats.
func AddOutput(cmd *cobra.Command, formats ...string) *Output {
	o := &Output{formats: formats}
	cmd.Flags().VarP(o, "output", "o", "output format: "+strings.Join(formats, ", ")+"; empty: text for people")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	return o
}

// String returns the value of the flag.
func (o *Output) String() string { return o.Format }

// Type is the name of the value in --help.
func (*Output) Type() string { return "format" }

// Set refuses an unknown format.
func (o *Output) Set(format string) error {
	if !slices.Contains(o.formats, format) {
		return fmt.Errorf("%q is not one of %s", format, strings.Join(o.formats, ", "))
	}
	o.Format = format
	return nil
}

// Named is what can be printed by -o name.
type Named interface{ Names() []string }

// Write prints a value: as text, or in the format of the flag.
func (o *Output) Write(to io.Writer, value any, text func(io.Writer) error) error {
	switch o.Format {
	case FormatJSON:
		return writeJSON(to, value)
	case FormatYAML:
		return WriteYAML(to, value)
	case FormatName:
		if value, ok := value.(Named); ok {
			for _, name := range value.Names() {
				fmt.Fprintln(to, name)
			}
		}
		return nil
	}
	return text(to)
}

func writeJSON(to io.Writer, value any) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "    ")
	return encoder.Encode(value)
}

// WriteYAML writes JSON, which is YAML too, of a value with characters for which YAML has no exact form that is safe on a terminal.
func WriteYAML(to io.Writer, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if strings.ContainsFunc(string(encoded), unsafe) { // also what yaml refuses to read or changes
		return writeJSON(to, value)
	}
	text, err := yaml.JSONToYAML(encoded)
	if err != nil {
		return err
	}
	if strings.ContainsFunc(string(text), func(r rune) bool { return r != '\n' && unsafe(r) }) {
		return writeJSON(to, value)
	}
	_, err = to.Write(text)
	return err
}

// NewTable aligns columns as kubectl does. Cells end with a tab.
func NewTable(to io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(to, 0, 0, 3, ' ', 0) }

// Row writes the cells of a table.
func Row(table io.Writer, cells ...string) {
	for i := range cells {
		cells[i] = Inline(cells[i])
	}
	fmt.Fprintln(table, strings.Join(cells, "\t"))
}

// None is a cell without a value.
const None = "<none>"

// Ago is the age of a time as kubectl prints it.
func Ago(then *metav1.Time, now time.Time) string {
	if then.IsZero() {
		return None
	}
	return duration.HumanDuration(now.Sub(then.Time))
}

// Until is the time that is left, "past" after that.
func Until(end *metav1.Time, now time.Time) string {
	switch {
	case end.IsZero():
		return None
	case !now.Before(end.Time):
		return "past"
	}
	return duration.HumanDuration(end.Sub(now))
}

// Plural is a number of things.
func Plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Join puts values behind each other, for lists of permissions and blocks.
func Join[T ~string](values []T, separator string) string {
	words := make([]string, len(values))
	for i, value := range values {
		words[i] = string(value)
	}
	return strings.Join(words, separator)
}
