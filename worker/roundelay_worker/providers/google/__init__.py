"""Google's Gemini API (generateContent)."""
