package delivery_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
)

func TestGuide_NamesEveryReason(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "webhooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	reasons := slices.DeleteFunc(delivery.Reasons(), func(reason string) bool {
		return reason == delivery.ReasonDelivered || reason == delivery.ReasonInterrupted || reason == delivery.ReasonUnsigned
	}) // of which no event dies
	for _, reason := range reasons {
		if !strings.Contains(string(text), "`"+reason+"`") {
			t.Errorf("docs/webhooks.md does not name %s", reason)
		}
	}
}
