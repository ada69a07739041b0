package payer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// WidgetPath is the path of the widget's script. The version changes when a shop has to change its page for it.
const WidgetPath = "/widget/v1.js"

// newWidget joins the script of the custom element <payment-session> from its texts, the status client and the element itself.
func newWidget(translations []translation) (Asset, error) {
	texts := map[string][]string{}
	for _, in := range translations {
		// In the order that widget.js expects.
		texts[in.Lang] = []string{
			in.TimeLeftText, in.AlreadyPaid, in.Waiting, in.Paid, in.Failed, in.Expired, in.Cancelled, in.NotFound, in.NotConnected,
		}
	}
	encoded, err := json.Marshal(texts)
	if err != nil {
		return Asset{}, fmt.Errorf("encode the texts of the widget: %w", err)
	}
	scripts, err := join("statusclient.js", "widget.js")
	if err != nil {
		return Asset{}, err
	}
	content := slices.Concat([]byte("const WIDGET_TEXTS = "), encoded, []byte(";\n"), scripts)
	compressed, err := compress(content)
	return Asset{Path: WidgetPath, ContentType: "text/javascript; charset=utf-8", Content: content, Gzipped: compressed}, err
}

// Widget returns the script of the widget, and a tag of its content for ETag.
func (p *Pages) Widget() (widget Asset, tag string) { return p.widget, hashOf(p.widget.Content) }
