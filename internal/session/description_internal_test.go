package session

import (
	"regexp"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

// A description is held to the rules of displayName, which the API server checks.
func TestDescription_PatternsOfDisplayName(t *testing.T) {
	crd := strings.ReplaceAll(repository.Read(t, "config", "crd", "bases", "merchant-operator.io_merchants.yaml"), "''", "'")
	for _, pattern := range []*regexp.Regexp{hiddenCharacter, hiddenJoiner, stackedMarks, visible} {
		if !strings.Contains(crd, "self.matches('"+strings.ReplaceAll(pattern.String(), `\`, `\\`)+"')") {
			t.Errorf("no field of a Merchant has the pattern %s", pattern)
		}
	}
}
