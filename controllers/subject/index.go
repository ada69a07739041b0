package subject

// PublishedNameIndex finds a Merchant or an ApiKey by the name of its published object, for nothing
// in an object that somebody broke can be relied upon.
const PublishedNameIndex = "published.name"
